"""Advice for values that are not numbers, and the exceptions that carry it."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from otel_rl.recorder.interrupts import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable

_Converted = TypeVar("_Converted")
_INSTEAD: dict[type | tuple[type, ...], str] = {
    (str, bytes, PurePath): "; use run.table() or run.event() for texts, run.params() for settings",
    Mapping: ": the mapping contains itself, or is in a list",
    type(None): "; leave it out, or log float('nan')",
    (set, frozenset): "; it has equal values once: log a list",
    complex: "; log abs(x), or x.real and x.imag",
    timedelta: "; log x.total_seconds()",
    date: "; log x.timestamp(), or use run.event()",
    Enum: "; log its value, or use run.params()",
    (list, tuple, deque, array, range): "; log one list, without lists in it",
    (FunctionType, BuiltinFunctionType, MethodType): "; call it",
    type: "; log a value",
    Iterable: "; log list(x)",
    object: "; use run.table(), run.event() or run.params() for what is not a number",
}
"""Advice for values of types that are not numbers; the first type of a value counts."""
_MEDIA = dict.fromkeys(("Audio", "Figure", "Html", "Image", "Video"), "; give media to the tracker itself")
_INSTEAD_BY_NAME = {
    "DataFrame": "; use run.table()",
    "Histogram": "; log a list of its values",
    "Table": "; use run.table()",
    **_MEDIA,
}
"""Advice by the name of the type, for types of packages that are not imported here."""


class Unconvertible(TypeError):
    """A value is not a number, or reading it would make the trainer wait."""


class Unnamed(TypeError):
    """A metric's name is not a `str`, or is too long."""


EXPLAINED = (Unconvertible, Unnamed, OverflowError)
"""Exceptions whose texts say what is wrong with a value."""


def of_foreign(convert: Callable[[Any], _Converted], value: object) -> _Converted:
    """Convert a foreign object.

    Raises:
        Unconvertible: It cannot be converted.
        OverflowError: It is too large.
    """
    try:
        return convert(value)
    except EXPLAINED:
        raise
    except Exception as error:
        let_pass(error)
        raise unreadable(value) from error


def unreadable(value: object) -> Unconvertible:
    """Return the error about a foreign object whose own error speaks to those who work on its library."""
    return Unconvertible(f"{type(value).__name__} cannot be read as a number; log float(x), or a list of numbers")


def instead_of(value: object) -> str:
    """Return what to log instead of a value that is not a number, as the end of a message."""
    known = _INSTEAD_BY_NAME.get(type(value).__name__)
    return known or next(text for kinds, text in _INSTEAD.items() if isinstance(value, kinds))

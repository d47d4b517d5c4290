"""Convert a value that somebody gave for a setting, and say what is allowed if it is invalid."""

from __future__ import annotations

import os
from typing import Any, get_args

import msgspec

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.settings.given import Convert, check_encoding, exact

_AS_IT_IS = Convert()
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_PLAIN = {str: "a text", bool: "true or false (in the environment also 1 or 0, yes or no, on or off)"}


def convert(value: object, kind: Any, label: str, *, from_text: bool) -> Any:
    """Return a value of a setting as the type that the setting has.

    Args:
        value: What was given for it.
        kind: Type of the setting, with its bounds and its conversion.
        label: The setting and the value as the user wrote them, for errors.
        from_text: If true, a text is converted to a number or a boolean: variables are texts, and 7e9 in YAML.

    Raises:
        SettingsError: The value is invalid.
    """
    try:
        return _converted(value, kind, strict=not from_text)
    except msgspec.ValidationError:
        raise SettingsError(f"invalid {label}: must be {_allowed(kind)}") from None
    except Exception as error:  # a foreign object's methods may raise anything
        raise SettingsError(f"invalid {label}: {text_of(error)}") from None


def _converted(value: Any, kind: Any, *, strict: bool) -> object:
    way = next((annotation for annotation in _annotations(kind) if isinstance(annotation, Convert)), _AS_IT_IS)
    if way.is_complete:
        return way.prepare(value)
    prepared: Any = way.prepare(exact(value))
    if isinstance(prepared, os.PathLike):
        prepared = os.fsdecode(prepared)
    if kind is bool and isinstance(prepared, str) and not strict:
        prepared = _BOOLEANS.get(prepared.strip().lower(), prepared)
    converted = msgspec.convert(prepared, kind, strict=strict)
    if not way.is_path:
        check_encoding(converted)
    if isinstance(converted, int) and not -(1 << 63) <= converted < 1 << 63:
        raise ValueError("must fit into 64 bits")
    if converted:
        way.check(converted)
    return converted


def _allowed(kind: Any) -> str:
    """Return which values a type allows."""
    for bounds in _annotations(kind):
        if not isinstance(bounds, msgspec.Meta):
            continue
        if bounds.description is not None:
            return bounds.description
        number = "a whole number" if kind.__origin__ is int else "a number"
        most = "" if bounds.le is None else f"{bounds.le:g}".replace("e+0", "e").replace("e+", "e")
        if bounds.ge is not None:
            return f"{number} between {bounds.ge} and {most}" if most else f"{number} of at least {bounds.ge}"
        return f"{number} above {bounds.gt}, at most {most}" if most else f"{number} above {bounds.gt}"
    plain = getattr(kind, "__origin__", kind) if _annotations(kind) else kind
    return _PLAIN.get(plain) or f"one of {', '.join(map(repr, sorted(get_args(kind))))}"


def _annotations(kind: Any) -> tuple[object, ...]:
    return getattr(kind, "__metadata__", ())

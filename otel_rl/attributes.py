"""What users give as attributes, as OpenTelemetry allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.interrupts import let_pass
from otel_rl.texts import text_of
from otel_rl.values import Unconvertible, to_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import AttributeValue

_LONGEST_TEXT = 4096
_INT64 = 1 << 63  # OTLP has signed integers of 64 bits
_PRIMITIVE = frozenset({str, bool, int, float})


def clean_attributes(
    attributes: Mapping[str, object] | None, refuse: Callable[[str, str], None] = lambda _, __: None
) -> dict[str, AttributeValue]:
    """Return what OpenTelemetry allows as attributes; other values become text, `None` is left out.

    What is no mapping is given to `refuse` with a reason and a text.
    """
    found: dict[str, AttributeValue] = {}
    try:
        for name, value in (attributes or {}).items():
            if value is None:
                continue
            found[name if type(name) is str else text_of(name)] = _clean(value)
    except Exception as error:  # what is no mapping, or a mapping that fails half way
        refuse("attribute", f"attributes in a {type(attributes).__name__}: {text_of(error)}")
    return found


def _clean(value: object) -> AttributeValue:
    if type(value) in _PRIMITIVE:
        return value if type(value) is not int or -_INT64 <= value < _INT64 else _digits(value)  # type: ignore[return-value]
    try:
        if isinstance(value, (list, tuple)):
            return [item if type(item) in _PRIMITIVE else text_of(item) for item in value]
        try:
            return to_number(value)
        except Unconvertible:
            return type(value).__name__ if hasattr(value, "device") else text_of(value)
    except Exception as error:  # what a foreign object's attributes may raise is not known
        let_pass(error)
        return type(value).__name__


def _digits(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python converts
        return f"{value:#x}"[:_LONGEST_TEXT]

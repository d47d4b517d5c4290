"""What users give as attributes, as OpenTelemetry allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.convert.values import Unconvertible, to_number
from otel_rl.errors.interrupts import let_pass
from otel_rl.errors.texts import name_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import AttributeValue

_LONGEST_DIGITS = 4096
LONGEST_TEXT = 1 << 20
"""Characters of an attribute's text; what is longer is cut. A span with more could not be sent by OTLP."""
_INT64 = 1 << 63  # OTLP has signed integers of 64 bits
_PRIMITIVE = frozenset({str, bool, int, float})
_CUT = frozenset({str, list})


def clean_attributes(
    attributes: Mapping[str, object] | None, refuse: Callable[[str, str], None] = lambda _, __: None
) -> dict[str, AttributeValue]:
    """Return what OpenTelemetry allows as attributes; other values become text, `None` is left out.

    What is no mapping, names that are too long, and that a text was cut, is given to `refuse` with a reason and a text.
    """
    found: dict[str, AttributeValue] = {}
    try:
        for name, value in (attributes or {}).items():
            if value is None:
                continue
            try:
                known = name_of(name)
            except ValueError as error:
                refuse("attribute", f"attribute: {error}")
                continue
            found[known] = clean = _clean(value)
            if type(clean) in _CUT and _is_long(clean):
                refuse("attribute_limits", f"attribute {known}: a text is cut to {LONGEST_TEXT} characters")
                found[known] = _cut(clean)
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


def _is_long(value: AttributeValue) -> bool:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return any(len(text) > LONGEST_TEXT for text in texts if isinstance(text, str))


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return value[:LONGEST_TEXT] if isinstance(value, str) else value


def _digits(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python converts
        return f"{value:#x}"[:_LONGEST_DIGITS]

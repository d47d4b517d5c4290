"""Conversion of users' attributes to values that OpenTelemetry allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.recorder.convert.refused_values import Unconvertible
from otel_rl.recorder.convert.values import to_number
from otel_rl.recorder.errors.texts import name_of, text_of
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.secrets import LONGEST_SECRET, without_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import AttributeValue

_LONGEST_DIGITS = 4096
LONGEST_TEXT = 1 << 20
"""The largest number of characters of an attribute's text; OTLP receivers refuse spans that are much larger."""
_INT64 = 1 << 63  # OTLP has signed integers of 64 bits
_PRIMITIVE = frozenset({str, bool, int, float})


def clean_attributes(
    attributes: Mapping[str, object] | None, refuse: Callable[[str, str], None] = lambda _, __: None
) -> dict[str, AttributeValue]:
    """Convert values to attributes of OpenTelemetry without secrets: other types become text, and `None` is omitted.

    Args:
        attributes: Values by name.
        refuse: Called with a reason and a message if `attributes` is not a mapping, a name is too long, or a text is
            truncated.
    """
    cleaned: dict[str, AttributeValue] = {}
    try:
        for name, value in (attributes or {}).items():
            if value is None:
                continue
            try:
                known = name_of(name)
            except ValueError as error:
                refuse("attribute", f"attribute: {error}")
                continue
            clean = _clean(value)
            if type(clean) is str or type(clean) is list:
                clean = without_secret(known, _cut(clean, LONGEST_TEXT + LONGEST_SECRET))
            cleaned[known] = cut = _cut(clean, LONGEST_TEXT)
            if cut is not clean and cut != clean:
                refuse("attribute_limits", f"attribute {known}: a text is truncated to {LONGEST_TEXT} characters")
    except Exception as error:  # not a mapping, or a mapping that raises
        refuse("attribute", f"attributes in a {type(attributes).__name__}: {text_of(error)}")
    return cleaned


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
    except Exception as error:  # attributes of unknown objects can raise anything
        let_pass(error)
        return type(value).__name__


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, list):
        return [_cut(item, longest) for item in value]
    return value[:longest] if isinstance(value, str) else value


def _digits(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python converts
        return f"{value:#x}"[:_LONGEST_DIGITS]

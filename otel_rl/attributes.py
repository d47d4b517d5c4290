"""What users give as attributes, as OpenTelemetry allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.values import Unconvertible, to_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.export import AttributeValue

_LONGEST_TEXT = 4096
_INT64 = 1 << 63  # OTLP has signed integers of 64 bits
_PRIMITIVE = frozenset({str, bool, int, float})


def clean_attributes(attributes: Mapping[str, object] | None) -> dict[str, AttributeValue]:
    """Return what OpenTelemetry allows as attributes; other values become text, `None` is left out."""
    return {str(name): _clean(value) for name, value in (attributes or {}).items() if value is not None}


def _clean(value: object) -> AttributeValue:
    if type(value) in _PRIMITIVE:
        return value if type(value) is not int or -_INT64 <= value < _INT64 else str(value)  # type: ignore[return-value]
    try:
        if isinstance(value, (list, tuple)):
            return [item if type(item) in _PRIMITIVE else str(item) for item in value]
        return to_number(value)
    except Unconvertible:
        return type(value).__name__ if hasattr(value, "device") else text_of(value)
    except Exception:
        return type(value).__name__


def text_of(value: object) -> str:
    """Return the text of any object, cut to 4,096 characters; its type where it has none."""
    try:
        return str(value)[:_LONGEST_TEXT]
    except Exception:  # an object whose own text cannot be had
        return type(value).__name__

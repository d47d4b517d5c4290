"""Items and records that other programs made, as OTLP can carry them: ids in hex, and integers of 64 bits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from otel_rl.recorder.journal.records import Configured, Happened, Logged, SpanEnded, StepEnded

if TYPE_CHECKING:
    from otel_rl.export import Span
    from otel_rl.recorder.journal.records import Record

_INT64 = 1 << 63
_IDS = re.compile("[0-9a-f]{32}/[0-9a-f]{16}/([0-9a-f]{16})?")


def check_span(span: Span) -> None:
    """Check the ids of a span, which may be from another system.

    Raises:
        ValueError: An id is not in lower-case hex, or has the wrong length.
    """
    if not _IDS.fullmatch(f"{span.trace_id}/{span.span_id}/{span.parent_id}"):
        raise ValueError(f"invalid ids {span.trace_id!r}, {span.span_id!r}, {span.parent_id!r} of a span")


def representable(record: Record) -> Record:
    """Return the record with integers that OTLP cannot encode (beyond signed 64 bits) as floats."""
    if isinstance(record, Logged | Configured) and any(map(_is_too_large, record.values.values())):
        return replace(record, values={name: _floated(value) for name, value in record.values.items()})
    if isinstance(record, Happened | StepEnded | SpanEnded) and record.attributes:
        return replace(record, attributes={name: _floated(value) for name, value in record.attributes.items()})
    return record


def _is_too_large(value: object) -> bool:
    return type(value) is int and not -_INT64 <= value < _INT64


def _floated(value: Any) -> Any:
    if isinstance(value, list):
        return [_floated(item) for item in value]
    return float(value) if _is_too_large(value) else value

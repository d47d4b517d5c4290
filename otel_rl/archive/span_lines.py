"""Spans as columns, and lines as spans. Nearly all items are spans, so that each column is made at once."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from otel_rl import semconv
from otel_rl.archive.json_texts import decoded, encoded
from otel_rl.convert.gen_ai_messages import without_messages
from otel_rl.export import Span, SpanEvent, SpanLink

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 1 << 63
"""The first integer that does not fit into a column."""
_SLOTS: dict[str, type] = {
    semconv.RUN_ATTEMPT: int,
    semconv.LOOP_ITERATION: int,
    semconv.ROLE: str,
    semconv.RANK: int,
    semconv.PHASE: str,
    semconv.PHASE_DEVICE_DURATION: float,
    semconv.PHASE_PROCESS_MEMORY_START: int,
    semconv.PHASE_PROCESS_MEMORY_END: int,
}
"""The attributes of spans that are the first columns of `spans`, with their types."""


def columns_of_spans(spans: Sequence[Span]) -> list[Sequence[Any]]:
    """Return the values of spans in each column of `spans`, in the order of the columns."""
    own, others = _split([*map(without_messages, spans)])  # the table of messages has these
    return [
        *own,
        [span.name for span in spans],
        [span.start_unix_nano for span in spans],
        [span.end_unix_nano - span.start_unix_nano for span in spans],
        [span.trace_id for span in spans],
        [span.span_id for span in spans],
        [span.parent_id for span in spans],
        [span.error for span in spans],
        [span.ok for span in spans],
        [span.kind for span in spans],
        others,
        _texts([span.events for span in spans]),
        _texts([span.links for span in spans]),
        _texts([span.scope if any(span.scope) else None for span in spans]),
        _texts([span.resource for span in spans]),
        [span.sampled for span in spans],
    ]


def span_of(line: Sequence[Any]) -> Span:
    """Return the span of a line."""
    own, (name, start, duration, trace_id, span_id, parent_id), rest = line[:8], line[8:14], line[14:]
    error, ok, kind, attributes, events, links, scope, resource, sampled = rest
    return Span(
        name,
        trace_id,
        span_id,
        parent_id,
        start,
        start + duration,
        {key: value for key, value in zip(_SLOTS, own, strict=True) if value is not None} | (decoded(attributes) or {}),
        error,
        kind,
        tuple(SpanEvent(**event) for event in decoded(events) or ()),
        tuple(SpanLink(**link) for link in decoded(links) or ()),
        tuple(decoded(scope) or ("", "")),
        decoded(resource) or {},
        ok,
        sampled is not False,
    )


def _split(attributes: Sequence[dict[str, Any]]) -> tuple[list[list[Any]], Sequence[str | None]]:
    """Return the attributes that have a column of their own, and the others as JSON."""
    nothing = [None] * len(attributes)
    names = set[str]().union(*attributes)
    own = [[one.get(name) for one in attributes] if name in names else nothing for name in _SLOTS]
    misfits = [
        (number, name)
        for (name, kind), values in zip(_SLOTS.items(), own, strict=True)
        if not _fit(kind, values)
        for number, value in enumerate(values)
        if not _fit(kind, [value])
    ]
    if names <= _SLOTS.keys() and not misfits:
        return own, nothing
    others = [{name: value for name, value in one.items() if name not in _SLOTS} for one in attributes]
    for number, name in misfits:  # of a program that uses the name in its own way
        others[number][name] = attributes[number][name]
        own[[*_SLOTS].index(name)][number] = None
    return own, _texts(others)


def _fit(kind: type, values: Sequence[Any]) -> bool:
    """Return whether values are of the type of their column, or missing."""
    found = set(map(type, values))
    if not found <= {kind, NoneType}:
        return False
    return int not in found or max(values if len(found) == 1 else filter(None, values), default=0) < LIMIT


def _texts(values: Sequence[Any]) -> Sequence[str | None]:
    """Return values as JSON; hardly any span has some."""
    return [encoded(value) if value else None for value in values] if any(values) else [None] * len(values)

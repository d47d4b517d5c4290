"""Checks what the types of a record cannot say, before it is applied.

A record that fails halfway would leave the state half-changed, and would fail again after each restart from the
checkpoint. So invalid records are found here, before anything changes. The bounds of single fields are part of their
types: `otel_rl.journal.records`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from otel_rl.journal.records import (
    IDS,
    Configured,
    Consumed,
    DeviceTimed,
    Fingerprint,
    Happened,
    Logged,
    Observed,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
    Tabled,
    Wrote,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.export import Span
    from otel_rl.journal.records import Record

_INT64 = 1 << 63
_MOST_SECONDS = 1e9
_TRACE_ID = 16
_SNAPSHOT = b"0123456789 \n"
_SEGMENT = 3
_IDS = re.compile("[0-9a-f]{32}/[0-9a-f]{16}/([0-9a-f]{16})?")


def check(record: Record) -> None:
    """Check the values in a record.

    Raises:
        ValueError: The record cannot be processed.
    """
    checker = _CHECKERS.get(type(record))
    if checker is not None:
        checker(record)


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


def _within(what: str, value: int, low: int, bound: int) -> None:
    if not low <= value < bound:
        raise ValueError(f"invalid {what}={value}: must be at least {low} and below {bound}")


def _memory(record: StepStarted | StepEnded | SpanStarted | SpanEnded) -> None:
    if record.memory.translate(None, _SNAPSHOT):
        raise ValueError(f"invalid memory={record.memory[:40]!r}: must be the content of /proc/PID/statm")
    for field in record.memory.split()[:2]:
        _within("memory", int(field), 0, 1 << 48)


def _trace_id(trace_id: bytes) -> None:
    if len(trace_id) not in (0, _TRACE_ID):
        raise ValueError(f"invalid trace id of {len(trace_id)} bytes: must be {_TRACE_ID}, or none")


def _ended(record: SpanEnded | StepEnded) -> None:
    _memory(record)
    for trace_id, _ in record.links or ():
        _trace_id(trace_id)


def _span_started(record: SpanStarted) -> None:
    _memory(record)
    _trace_id(record.trace_id)


def _logged(record: Logged) -> None:
    if not record.weight < math.inf:
        raise ValueError(f"invalid weight={record.weight}: must be finite")


def _observed(record: Observed) -> None:
    for name, raw in record.values.items():
        _doubles(name, raw)


def _doubles(name: str, raw: bytes) -> None:
    if len(raw) % 8:
        raise ValueError(f"invalid {name} of {len(raw)} bytes: must be whole numbers of 8 bytes each")


def _tabled(record: Tabled) -> None:
    if len(set(record.columns)) < len(record.columns):
        raise ValueError(f"invalid columns={record.columns}: each name must be there once")
    for cells in record.rows:
        if len(cells) != len(record.columns):
            raise ValueError(f"invalid row of {len(cells)} cells: there are {len(record.columns)} columns")


def _happened(record: Happened) -> None:
    _trace_id(record.trace_id)


def _device_timed(record: DeviceTimed) -> None:
    for what, seconds in (("seconds", record.seconds), ("offset", record.offset)):
        if not (math.isnan(seconds) or abs(seconds) < _MOST_SECONDS):
            raise ValueError(f"invalid {what}={seconds}: must be below {_MOST_SECONDS:g}")


def _consumed(record: Consumed) -> None:
    _doubles("rewards", record.rewards)
    count, rest = divmod(len(record.ids), IDS.size)
    if rest or count != len(record.rewards) // 8:
        raise ValueError(f"invalid ids of {len(record.ids)} bytes for {len(record.rewards) // 8} rewards")
    if len(record.segments) % (8 * _SEGMENT):
        raise ValueError(f"invalid segments of {len(record.segments)} bytes: must be three integers of 8 bytes each")
    segments = memoryview(record.segments).cast("q")
    times = [*record.parts.values(), *(seconds for _, *both in record.tools.values() for seconds in both)]
    if not all(0 <= seconds < math.inf for seconds in times):
        raise ValueError(f"invalid times of parts {times}: must be finite numbers of at least 0")
    for found in (record.advantages, record.losses):
        if len(found) not in (0, 8 * count):
            raise ValueError(f"invalid scores of {len(found)} bytes for {count} trajectories")
    for each in (record.origins, record.components, record.logprobs):
        if len(each) not in (0, count):
            raise ValueError(f"invalid number {len(each)} of values for {count} trajectories")
    for raw in record.logprobs:
        _doubles("log-probabilities", raw)
    for which, version, tokens in zip(segments[0::3], segments[1::3], segments[2::3], strict=True):
        _within("trajectory", which, 0, count)
        _within("version", version, -1, _INT64)
        _within("tokens", tokens, 0, 1 << 53)


def _wrote(record: Wrote) -> None:
    if len(record.trace_id) != _TRACE_ID or not record.span_id < 1 << 64:
        raise ValueError(f"invalid ids {record.trace_id!r}, {record.span_id} of a trajectory")
    for one in record.messages:
        counts = {len(one.mask), len(one.tokens) / 4, len(one.logprobs) / 8, len(one.pieces)} - {0}
        if len(counts) > 1 or counts - {int(count) for count in counts}:
            raise ValueError(f"invalid numbers {sorted(counts)} of tokens, their lists and texts: must be equal")


def _fingerprint(record: Fingerprint) -> None:
    for name, one in record.tensors.items():
        if len(one.values) != 8 * one.held.bit_count():
            raise ValueError(f"invalid {name} of {len(one.values)} bytes for {one.held.bit_count()} elements")


_CHECKERS: dict[type, Callable[[Any], None]] = {
    StepStarted: _memory,
    StepEnded: _ended,
    SpanStarted: _span_started,
    SpanEnded: _ended,
    Logged: _logged,
    Observed: _observed,
    Tabled: _tabled,
    Happened: _happened,
    DeviceTimed: _device_timed,
    Consumed: _consumed,
    Fingerprint: _fingerprint,
    Wrote: _wrote,
}
"""The checks by kind of record."""

"""Checks the values of a record before it is applied; msgspec has checked the types.

A record that fails halfway would leave the state half-changed, and would fail again after each restart from the
checkpoint. So invalid records are found here, before anything changes.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from otel_rl.errors.texts import LONGEST_NAME
from otel_rl.journal.records import (
    IDS,
    Configured,
    Consumed,
    DeviceSeen,
    DeviceTimed,
    Happened,
    Logged,
    Observed,
    Refusals,
    SpanEnded,
    SpanStarted,
    Started,
    StepEnded,
    StepStarted,
    Tabled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_rl.export import Span
    from otel_rl.journal.records import Record

_INT64 = 1 << 63
_COUNT = 1 << 31
_LATEST = 1 << 62
"""Latest time, in Unix nanoseconds: the year 2116. Sums of two times still fit in 64 bits."""
_LONGEST_NAME = 6 * LONGEST_NAME  # a trainer may escape characters that UTF-8 cannot encode
_LONGEST_SNAPSHOT = 256
_MOST_SECONDS = 1e9
_SPAN_KINDS = range(5)
_TRACE_ID = 16
_SNAPSHOT = b"0123456789 \n"
_SEGMENT = 3
_IDS = re.compile("[0-9a-f]{32}/[0-9a-f]{16}/([0-9a-f]{16})?")
_BOUNDS = {
    "time": (0, _LATEST),
    "step": (0, _INT64),
    **dict.fromkeys(("attempt", "rank", "world_size", "local_world_size", "index", "exit_code"), (0, _COUNT)),
    **dict.fromkeys(("pid", "cut_rows", "total"), (0, _INT64)),
    "page_size": (1, _COUNT),
    "policy_version": (-1, _INT64),
    "count": (-_COUNT, _COUNT),
}
"""The lowest value of each integer field, and the first value that is too high."""
_NAMES: dict[type, tuple[str, ...]] = {
    Started: ("run_id", "role", "host"),
    StepEnded: ("attributes",),
    SpanStarted: ("name", "part", "scope"),
    SpanEnded: ("attributes",),
    Logged: ("values",),
    Observed: ("values",),
    Tabled: ("name", "columns"),
    Configured: ("values",),
    Happened: ("name", "attributes"),
    Refusals: ("counts",),
    DeviceSeen: ("uuid", "name"),
    Consumed: ("outcome", "parts", "tools"),
}
"""Fields that are a name or contain names, by kind of record."""


def check(record: Record) -> None:
    """Check the values in a record.

    Raises:
        ValueError: The record cannot be processed.
    """
    kind = type(record)
    for field in _bounded(kind):
        _within(field, getattr(record, field), *_BOUNDS[field])
    for field in _NAMES.get(kind, ()):
        found = getattr(record, field)
        _names(field, (found,) if isinstance(found, str) else found or ())
    checker = _CHECKERS.get(kind)
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


@cache
def _bounded(kind: type[Record]) -> tuple[str, ...]:
    return tuple(field for field in kind.__struct_fields__ if field in _BOUNDS)


def _within(what: str, value: int | None, low: int, bound: int) -> None:
    if value is not None and not low <= value < bound:
        raise ValueError(f"invalid {what}={value}: must be at least {low} and below {bound}")


def _names(what: str, names: Iterable[str]) -> None:
    longest = max(map(len, names), default=0)
    if longest > _LONGEST_NAME:
        raise ValueError(f"invalid {what}: a name of {longest} characters; at most {_LONGEST_NAME} are allowed")


def _memory(record: StepStarted | StepEnded | SpanStarted | SpanEnded) -> None:
    if len(record.memory) > _LONGEST_SNAPSHOT or record.memory.translate(None, _SNAPSHOT):
        raise ValueError(f"invalid memory={record.memory[:40]!r}: must be the content of /proc/PID/statm")
    for field in record.memory.split()[:2]:
        _within("memory", int(field), 0, 1 << 48)
    for device in record.devices or ():
        _within("device index", device.index, 0, _COUNT)
        for name in device.__struct_fields__:
            _within(name, getattr(device, name), -1, _INT64)


def _ids(trace_id: bytes, *span_ids: int) -> None:
    if len(trace_id) not in (0, _TRACE_ID):
        raise ValueError(f"invalid trace id of {len(trace_id)} bytes: must be {_TRACE_ID}, or none")
    for span_id in span_ids:
        _within("span id", span_id, 0, 1 << 64)


def _ended(record: SpanEnded | StepEnded) -> None:
    _memory(record)
    for name, time, attributes in record.events or ():
        _names("event", [name, *attributes])
        _within("time", time, *_BOUNDS["time"])
    for trace_id, span_id in record.links or ():
        _ids(trace_id, span_id)


def _span_started(record: SpanStarted) -> None:
    _memory(record)
    _ids(record.trace_id, record.span_id, record.parent_id)
    if record.kind is not None and record.kind not in _SPAN_KINDS:
        raise ValueError(f"invalid kind={record.kind}: must be one of {[*_SPAN_KINDS]}")


def _logged(record: Logged) -> None:
    if not 0 <= record.weight < math.inf:
        raise ValueError(f"invalid weight={record.weight}: must be a finite number of at least 0")


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
    _ids(record.trace_id, record.span_id)


def _refusals(record: Refusals) -> None:
    for count in record.counts.values():
        _within("count", count, 0, _INT64)


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
    for calls, _, _ in record.tools.values():
        _within("calls", calls, 0, _INT64)
    for which, version, tokens in zip(segments[0::3], segments[1::3], segments[2::3], strict=True):
        _within("trajectory", which, 0, count)
        _within("version", version, -1, _INT64)
        _within("tokens", tokens, 0, 1 << 53)


_CHECKERS: dict[type, Callable[[Any], None]] = {
    StepStarted: _memory,
    StepEnded: _ended,
    SpanStarted: _span_started,
    SpanEnded: _ended,
    Logged: _logged,
    Observed: _observed,
    Tabled: _tabled,
    Happened: _happened,
    Refusals: _refusals,
    DeviceTimed: _device_timed,
    Consumed: _consumed,
}
"""Checks beyond the bounds and the names, by kind of record."""

"""A run as a trace for Perfetto (https://ui.perfetto.dev): JSON of Chrome's trace event format, compressed by gzip.

Source: "Trace Event Format", and Perfetto's importer, which takes a decimal text as microseconds to the nanosecond.
"""

from __future__ import annotations

import gzip
import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from otel_rl import semconv
from otel_rl.look.reader.runs import in_steps
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.files.atomic_files import replacing
from otel_rl.semconv.main_metrics import MainMetrics
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.look.reader.runs import RunReader

    Event = dict[str, Any]

_LEVEL = 5
"""Level of compression: a trace of a million spans takes seconds, and is less than a tenth larger than at 9."""
_AFTER = 1 << 20
"""More than a process has lanes: those of trajectories come after those of phases."""
_EVENTS = 2
"""The thread of events in the process of steps, which has no trajectories."""
_METRICS, _STEPS = ("metrics", None, ""), ("steps", None, "")
_PROGRAM = f"""CASE WHEN resource IS NOT NULL
    THEN coalesce(resource ->> '$."{semconv.SERVICE_NAME}"', 'another program') END"""
_SPANS = """
WITH trained AS (
    SELECT hash(span_id, attempt, step, rank, number) AS flow, span_id, step, rank, time_unix_nano AS time
    FROM trajectories WHERE outcome = 'trained' AND span_id <> ''
), leaving AS (
    SELECT span_id, list({{'flow': flow, 'time': time}}) AS flows FROM trained GROUP BY span_id
), loops AS (
    SELECT step, any_value(span_id) AS loop_id FROM spans WHERE name = '{loop}' GROUP BY step
), phases AS (
    SELECT step, rank, arg_min(span_id, start_unix_nano) AS phase_id
    FROM spans WHERE coalesce(phase, name) IN ({training}) AND coalesce(role, '') = '' GROUP BY step, rank
), arriving AS (
    SELECT coalesce(phase_id, loop_id) AS span_id, list({{'flow': flow, 'time': time}}) AS flows
    FROM trained LEFT JOIN phases USING (step, rank) LEFT JOIN loops USING (step) GROUP BY ALL
), begun AS (SELECT role, rank, host, started_unix_nano AS start_unix_nano FROM attempts)
SELECT spans.start_unix_nano, duration_ns, coalesce(phase, name), name = '{loop}', {program}, coalesce(spans.role, ''),
    spans.rank, coalesce(begun.host, ''), trace_id IN (SELECT trace_id FROM spans WHERE name = '{trajectory}'),
    span_id, parent_id, spans.step, attempt, error, attributes, memory_start_bytes, memory_end_bytes,
    leaving.flows, arriving.flows
FROM spans ASOF LEFT JOIN begun
    ON coalesce(spans.role, '') = begun.role AND spans.rank = begun.rank
    AND spans.start_unix_nano >= begun.start_unix_nano
LEFT JOIN leaving USING (span_id) LEFT JOIN arriving USING (span_id)
WHERE {wanted} ORDER BY spans.start_unix_nano, duration_ns DESC
"""


class TraceLanes:
    """The lanes of one process. It holds the spans that are open, and no others."""

    def __init__(self) -> None:
        self._open: dict[
            int, list[tuple[int, str]]
        ] = {}  # ends and ids of the open spans of a lane, the outermost first
        self._lane_of: dict[str, int] = {}
        self._busy: list[tuple[int, int]] = []  # ends of the outermost spans, with their lanes
        self._free: list[int] = []
        self.count = 0

    def place(self, start: int, end: int, span_id: str, parent_id: str) -> int:
        """Return the lane of a span: that of its parent, if it ends inside of it, or the first that is free."""
        while self._busy and self._busy[0][0] <= start:
            _, lane = heapq.heappop(self._busy)
            self._close(lane, start)
            heapq.heappush(self._free, lane)
        lane = self._lane_of.get(parent_id, -1)
        if lane >= 0:
            self._close(lane, start)
        if lane < 0 or not self._open[lane] or self._open[lane][-1][0] < end:
            lane = heapq.heappop(self._free) if self._free else self.count
            self.count = max(self.count, lane + 1)
            heapq.heappush(self._busy, (end, lane))
        self._open.setdefault(lane, []).append((end, span_id))
        self._lane_of[span_id] = lane
        return lane

    def _close(self, lane: int, now: int) -> None:
        opened = self._open[lane]
        while opened and opened[-1][0] <= now:
            _, span_id = opened.pop()
            self._lane_of.pop(span_id, None)


class _Span(NamedTuple):
    start: int
    duration: int
    name: str
    is_step: bool
    program: str | None
    role: str
    rank: int | None
    host: str
    is_of_trajectory: bool
    span_id: str
    parent_id: str
    step: int | None
    attempt: int | None
    error: str | None
    attributes: str | None
    memory_start: int | None
    memory_end: int | None
    leaving: list[dict[str, int]] | None
    arriving: list[dict[str, int]] | None

    @property
    def process(self) -> tuple[str, int | None, str]:
        """The process in the trace: role, rank and host."""
        if self.is_step:
            return _STEPS
        return (self.program, None, self.host) if self.program is not None else (self.role, self.rank, self.host)


def write(run: RunReader, file: Path, steps: tuple[int, int] | None) -> int:
    """Write the trace of a run into a file; return the number of events in it.

    Raises:
        OSError: The file cannot be written.
    """
    count = 0
    encode = msgspec.json.Encoder().encode
    # The time in gzip's header is 0, so that a run gives the same bytes each time.
    with replacing(file) as raw, gzip.GzipFile(file.name, "wb", _LEVEL, raw, 0) as packed:
        packed.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        for event in _Trace(run, steps).events():
            packed.write((b",\n" if count else b"\n") + encode(event))
            count += 1
        packed.write(b"\n]}\n")
    return count


class _Trace:
    """The events of a trace, with times since the first of them."""

    def __init__(self, run: RunReader, steps: tuple[int, int] | None) -> None:
        self._run, self._where = run, in_steps(steps) or "true"
        times = (("spans", "start_unix_nano"), *((name, "time_unix_nano") for name in ("rows", "events")))
        firsts = [f"SELECT min({time}) AS first FROM {table} WHERE {self._where}" for table, time in times]
        firsts.append(f"SELECT min(time_unix_nano) AS first FROM measurements WHERE {self._around()}")
        first = run.sql(f"SELECT coalesce(min(first), 0) AS first FROM ({' UNION ALL '.join(firsts)})")
        self._origin = int(first["first"][0])
        self._numbers: dict[tuple[str, int | None, str], int] = {}
        self._phases: dict[int, TraceLanes] = {}
        self._trajectories: dict[int, TraceLanes] = {}

    def events(self) -> Iterator[Event]:
        """Yield the events: counters, spans, what happened at a moment, and the names of processes and threads."""
        for process in (_METRICS, _STEPS):
            self._number(process)
        yield from self._counters()
        names = {"program": _PROGRAM, "loop": semconv.SPAN_LOOP, "trajectory": semconv.SPAN_TRAJECTORY}
        phases = self._run.sql("SELECT DISTINCT coalesce(phase, name) AS name FROM spans")["name"].tolist()
        training = ", ".join(literal(name) for name in phases if category_of(name) == "training") or "NULL"
        query = _SPANS.format(**names, training=training, wanted=self._where)
        for lines in self._run.stream(query):
            for line in lines:
                yield from self._span(_Span._make(line))
        yield from self._moments()
        yield from self._names()

    def _number(self, process: tuple[str, int | None, str]) -> int:
        return self._numbers.setdefault(process, len(self._numbers) + 1)

    def _at(self, time: int) -> str:
        return _micros(time - self._origin)

    def _span(self, span: _Span) -> Iterator[Event]:
        pid, end = self._number(span.process), span.start + span.duration
        groups = self._trajectories if span.is_of_trajectory and not span.is_step else self._phases
        lane = groups.setdefault(pid, TraceLanes()).place(span.start, end, span.span_id, span.parent_id)
        place = {"pid": pid, "tid": 2 * lane + (1 if groups is self._phases else 2)}
        known = {"step": span.step, "attempt": span.attempt, "error": span.error, "span_id": span.span_id}
        args = {
            **(decoded(span.attributes) or {}),
            **{name: value for name, value in known.items() if value is not None},
        }
        what = {
            "ph": "X",
            "name": span.name,
            "cat": "step" if span.is_step else "trajectory" if span.is_of_trajectory else "phase",
            "ts": self._at(span.start),
            "dur": _micros(span.duration),
            "args": args,
        }
        yield place | what
        for time, value in ((span.start, span.memory_start), (end, span.memory_end)):
            if value is not None:
                yield self._counter(pid, "memory_bytes", time, value)
        for end_of, flows in (("s", span.leaving), ("f", span.arriving)):
            for flow in flows or ():  # Perfetto takes the innermost slice at the time: parts begin after the trajectory
                at = max(min(flow["time"], end - 1), span.start) if end_of == "f" else span.start
                ends = {"ph": end_of, "bp": "e", "id": f"{flow['flow']:x}", "cat": "trained", "name": "trained"}
                yield place | ends | {"ts": self._at(at)}

    def _counter(self, pid: int, name: str, time: int, value: float) -> Event:
        return {"ph": "C", "pid": pid, "name": name, "ts": self._at(time), "args": {"value": value}}

    def _counters(self) -> Iterator[Event]:
        """Yield the main metrics at the times of their rows, and the memory of machines."""
        pid, names = self._number(_METRICS), self._run.sql("SELECT DISTINCT name FROM rows")["name"].tolist()
        main = ", ".join(map(literal, MainMetrics(sorted(names)).names)) or "NULL"
        queries = (
            f"SELECT name, time_unix_nano, value FROM rows WHERE name IN ({main}) AND {self._where}",
            f"SELECT name, time_unix_nano, value FROM measurements WHERE name LIKE '%mem%' AND {self._around()}",
        )
        for query in queries:
            # JSON has neither NaN nor infinities (tests/look/test_export.py).
            for lines in self._run.stream(f"{query} AND isfinite(value) ORDER BY time_unix_nano"):
                yield from (self._counter(pid, *line) for line in lines)

    def _around(self) -> str:
        """Return the condition that a time is not outside of the chosen steps."""
        if self._where == "true":
            return "true"
        bounds = f"SELECT {{}} FROM spans WHERE {self._where}"
        first, last = bounds.format("min(start_unix_nano)"), bounds.format("max(start_unix_nano + duration_ns)")
        return f"time_unix_nano BETWEEN ({first}) AND ({last})"

    def _moments(self) -> Iterator[Event]:
        query = f"SELECT name, time_unix_nano, rank, attributes FROM events WHERE {self._where} ORDER BY 2"
        place = {"ph": "i", "s": "t", "pid": self._number(_STEPS), "tid": _EVENTS}
        yield _metadata(self._number(_STEPS), _EVENTS, "thread_name", "events")
        for lines in self._run.stream(query):
            for name, time, rank, attributes in lines:
                args = (decoded(attributes) or {}) | ({} if rank is None else {"rank": rank})
                yield place | {"name": name, "ts": self._at(time), "args": args}

    def _names(self) -> Iterator[Event]:
        order = sorted(
            self._numbers, key=lambda track: (track not in (_METRICS, _STEPS), track[0], track[1] or 0, track[2])
        )
        for number, process in enumerate(order):
            pid, (role, rank, host) = self._numbers[process], process
            texts = (role or "rank", None if rank is None else str(rank), f"on {host}" if host else None)
            yield _metadata(pid, 0, "process_name", " ".join(filter(None, texts)))
            yield _metadata(pid, 0, "process_sort_index", number)
            kind = "steps" if process == _STEPS else "phases"
            for what, offset, lanes in ((kind, 1, self._phases), ("trajectories", 2, self._trajectories)):
                for lane in range(lanes[pid].count if pid in lanes else 0):
                    tid = 2 * lane + offset
                    yield _metadata(pid, tid, "thread_name", what if lane == 0 else f"{what} {lane + 1}")
                    yield _metadata(pid, tid, "thread_sort_index", lane + _AFTER * (offset - 1))


def _metadata(pid: int, tid: int, name: str, value: str | int) -> Event:
    args = {"sort_index" if isinstance(value, int) else "name": value}
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}


def _micros(nanoseconds: int) -> str:
    """Return a time in microseconds, to the nanosecond."""
    sign, size = "-" if nanoseconds < 0 else "", abs(nanoseconds)
    return f"{sign}{size // 1000}.{size % 1000:03d}"

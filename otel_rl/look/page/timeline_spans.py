"""Reads the spans of a run as columns: who worked, on what, from when to when. Texts are read once, as codes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl import semconv

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from otel_rl.look.reader.runs import RunReader

    Integers = NDArray[np.int64]

_WHO = "hash(coalesce(role, ''), coalesce(rank, -1), coalesce(resource, ''))"
_TOOL = f"""CASE WHEN name = '{semconv.SPAN_TRAJECTORY}.tool'
    THEN attributes ->> '$."{semconv.GEN_AI_TOOL_NAME}"' ELSE '' END"""
_WHAT = f"hash(name, coalesce(phase, ''), coalesce({_TOOL}, ''))"
_TRACES = f"SELECT trace_id FROM spans WHERE name = '{semconv.SPAN_TRAJECTORY}'"
_COLUMNS = f"""start_unix_nano, duration_ns, coalesce(step, -1) AS step, error IS NOT NULL AS failed, {_WHO} AS who,
    {_WHAT} AS what, hash(span_id) AS id, CASE WHEN trace_id IN ({_TRACES}) THEN hash(trace_id) ELSE 0 END AS trace"""
_LONGEST_ATTRIBUTES = 400
_MOST_DETAILS = 20_000
_SAMPLED_STEPS = 64
_MOST_SAMPLED = 200_000
_WIDTH = 10
"""Columns of spans; tables follow."""


class TimelineProcess(NamedTuple):
    """A process of the run, or another program that sent spans, such as an inference server; `rank` may be unknown."""

    role: str
    rank: int | None
    resource: str
    machine: str


class SpanName(NamedTuple):
    """Names of a kind of span: its own, that of its phase, and that of a tool."""

    name: str
    phase: str
    tool: str


class Thinned(NamedTuple):
    """The rule by which spans of a very large run were left out.

    Of all spans of a process with the same name that begin in the same `bin_ns` and are shorter than it, only the
    longest was kept, and those that failed.
    """

    recorded: int
    bin_ns: int


class TimelineSpans(NamedTuple):
    """The spans of a run, a column each; `who` and `what` are numbers of their tables.

    The weight of a span is its duration and that of those for which it stands.
    """

    start: Integers
    duration: Integers
    step: Integers
    failed: NDArray[np.bool_]
    is_open: NDArray[np.bool_]
    who: NDArray[np.int64]
    what: NDArray[np.int64]
    id: NDArray[np.uint64]
    trace: NDArray[np.uint64]
    weight: Integers
    processes: list[TimelineProcess]
    names: list[SpanName]
    thinned: Thinned | None

    def taken(self, order: NDArray[Any]) -> TimelineSpans:
        """Return some of the spans, in an order."""
        columns: tuple[Any, ...] = self[:_WIDTH]
        return TimelineSpans._make((*(column[order] for column in columns), *self[_WIDTH:]))


def _read_names(run: RunReader) -> tuple[NDArray[np.uint64], list[TimelineProcess], NDArray[np.uint64], list[SpanName]]:
    """Return the keys of processes with the processes, and the keys of names with the names.

    They are read after the spans: so they have all that spans of a run that goes on refer to.
    """
    rows = run.sql(f"""SELECT {_WHO} AS who, coalesce(any_value(role), '') AS role, any_value(rank) AS rank,
            coalesce(any_value(resource), '') AS resource, min(machine) AS machine, {_WHAT} AS what,
            any_value(name) AS name, coalesce(any_value(phase), '') AS phase, coalesce(any_value({_TOOL}), '') AS tool
        FROM spans GROUP BY who, what ORDER BY who, what""")
    processes: dict[int, TimelineProcess] = {}
    names: dict[int, SpanName] = {}
    for who, role, rank, resource, machine, what, *name in zip(*(rows[column] for column in rows), strict=True):
        processes.setdefault(
            int(who), TimelineProcess(role, None if rank is np.ma.masked else int(rank), resource, machine)
        )
        names.setdefault(int(what), SpanName(*name))
    keys = (np.fromiter(keys_of_table, np.uint64, len(keys_of_table)) for keys_of_table in (processes, names))
    return next(keys), list(processes.values()), next(keys), list(names.values())


def read_sample(run: RunReader) -> dict[SpanName, int]:
    """Return how many phases each phase is usually inside of, in some steps of a large run."""
    last = run.sql("SELECT coalesce(max(step), 0) AS last FROM spans")
    every = int(last["last"][0]) // _SAMPLED_STEPS + 1
    sampled = run.sql(f"""SELECT name, coalesce(phase, '') AS phase, {_WHO} AS who, start_unix_nano AS start,
            start_unix_nano + duration_ns AS last FROM spans WHERE step % {every} = 0
        AND name <> '{semconv.SPAN_LOOP}' ORDER BY who, start, last DESC LIMIT {_MOST_SAMPLED}""")
    counted: defaultdict[SpanName, list[int]] = defaultdict(list)
    around: list[int] = []
    before = None
    for name, phase, who, start, end in zip(*(sampled[column].tolist() for column in sampled), strict=True):
        if who != before:
            around, before = [], who
        around = [start_around for start_around in around if start_around > start]
        counted[SpanName(name, phase, "")].append(len(around))
        around.append(end)
    return {what: sorted(levels)[len(levels) // 2] for what, levels in counted.items()}


class Detail(NamedTuple):
    """The error message of a span, and its attributes as JSON."""

    id: int
    error: str
    attributes: str


def read_spans(run: RunReader, most: int) -> TimelineSpans:
    """Return the spans of a run; if there are more than `most`, the longest of many short ones."""
    size = run.sql("""SELECT count(*) AS spans, coalesce(min(start_unix_nano), 0) AS first,
        coalesce(max(start_unix_nano), 0) AS last FROM spans""")
    recorded, first, last = (int(size[name][0]) for name in size)
    thinned = None
    query = f"SELECT {_COLUMNS} FROM spans"
    weighed = f"SELECT *, duration_ns AS weight FROM ({query})"
    if recorded > most:
        rows = run.sql(f"SELECT count(DISTINCT hash({_WHO}, {_WHAT})) AS rows FROM spans")
        bins = max(16, most // (2 * int(rows["rows"][0])))
        thinned = Thinned(recorded, max(1, (last - first) // bins))
        weighed = f"""SELECT *, duration_ns AS weight FROM ({query}) WHERE duration_ns >= {thinned.bin_ns} OR failed
            UNION ALL
            SELECT unnest(arg_max(one, one.duration_ns)), sum(one.duration_ns)::BIGINT AS weight FROM (
                SELECT one, one.who AS who, one.what AS what, (one.start_unix_nano - {first}) // {thinned.bin_ns} AS bin
                FROM (SELECT {_COLUMNS} FROM spans) AS one
                WHERE one.duration_ns < {thinned.bin_ns} AND NOT one.failed
            ) GROUP BY who, what, bin"""
    # Hashes of 64 bits stand for texts: two of a million are alike once in 37 million runs. DuckDB changes the function
    # from version to version, so that none is ever kept.
    rows = run.sql(weighed)
    start, duration, step, failed, who, what, ids, trace, weight = (np.ma.getdata(rows[name]) for name in rows)
    whos, processes, whats, names = _read_names(run)
    spans = TimelineSpans(
        *(start, duration, step, failed, np.zeros(len(start), np.bool_)),
        *(_codes(who, whos), _codes(what, whats), ids, trace, weight),
        *(processes, names, thinned),
    )
    known = (spans.who >= 0) & (spans.what >= 0)  # thinning of the archive may delete a name in between
    return spans if known.all() else spans.taken(np.flatnonzero(known))


def read_details(run: RunReader) -> list[Detail]:
    """Return what is known of the spans that failed, and of the longest ones with few attributes."""
    rows = run.sql(f"""SELECT hash(span_id) AS id, coalesce(left(error, {_LONGEST_ATTRIBUTES}), '') AS error,
            CASE WHEN length(attributes) <= {_LONGEST_ATTRIBUTES} THEN attributes ELSE '' END AS attributes
        FROM spans WHERE error IS NOT NULL OR length(attributes) <= {_LONGEST_ATTRIBUTES}
        ORDER BY error IS NULL, duration_ns DESC LIMIT {_MOST_DETAILS}""")
    return [
        Detail(int(span_id), error, attributes or "")
        for span_id, error, attributes in zip(*map(rows.__getitem__, rows), strict=True)
    ]


def _codes(keys: NDArray[Any], known: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each key in the known ones; -1 if it is not there."""
    if not len(known):
        return np.full(len(keys), -1, np.int64)
    order = np.argsort(known)
    places = np.minimum(np.searchsorted(known, keys, sorter=order), len(known) - 1)
    codes: NDArray[np.int64] = np.where(known[order[places]] == keys, order[places], -1)
    return codes

"""The lines of several runs, to be drawn over each other: `GET curves`."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import numpy as np

from otel_rl.look.page.packed import packed
from otel_rl.look.ui.run_ranges import FIRST_NAMES
from otel_rl.look.ui.seeds import LinePoints, as_band
from otel_rl.look.ui.step_ranges import signature_of
from otel_rl.look.ui.token_axis import token_name, tokens_at
from otel_rl.recorder.otlp.answers import MALFORMED, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from otel_rl.look.ui.range_cache import RangeCache
    from otel_rl.look.ui.run_ranges import NameRanges, RunRanges

MOST_RUNS, MOST_NAMES = 50, 24
_MOST_LISTED = 5000
_MOST_POINTS = 600
"""Points of a line; a range of steps that has more values has its lowest, its highest and its mean."""
_EXACT_BELOW = 50_000
"""With fewer points in all lines, values are stored as doubles, bit for bit."""
_LEVEL = 1
_NO_BANDS: Mapping[str, str] = {}
AXES = ("step", "time", "tokens")


class OverlaidRun(NamedTuple):
    """A run of an overlay."""

    key: str  # its key in the index
    path: Path  # its directory


class OverlaidLine(NamedTuple):
    """A line of a name: of a run, or of several that differ in their seed alone."""

    run: int  # the number of the run, of several that of the first
    of: int  # number of runs
    name: str
    points: LinePoints
    bad: int  # number of values that are not finite
    bad_at: int  # the first step of those; -1 without any


def tag_of(runs: Iterable[OverlaidRun], *asked: object) -> str:
    """Return a text that differs when an answer about runs does: it is known before the answer is made."""
    signatures = [signature_of(run.path) for run in runs]
    return hashlib.blake2b(repr((signatures, asked)).encode(), digest_size=16).hexdigest()


def overlay(
    cache: RangeCache,
    runs: Sequence[OverlaidRun],
    names: Sequence[str],
    x: str,
    find: str = "",
    bands: Mapping[str, str] = _NO_BANDS,
) -> dict[str, Any]:
    """Return lines of runs, as `decode.js` reads them.

    Args:
        cache: What is known of the runs.
        runs: The runs, at most `MOST_RUNS`.
        names: The names that are drawn; the first main metrics of all runs without any.
        x: The axis, one of `AXES`.
        find: A regular expression, whose first names are drawn in place of these.
        bands: By the key of a run, that of the run whose line it shares.

    Raises:
        Refusal: There are too many runs or names, or the axis is another one.
    """
    if len(runs) > MOST_RUNS or len(names) > MOST_NAMES or x not in AXES:
        raise Refusal(MALFORMED, f"at most {MOST_RUNS} runs, {MOST_NAMES} names, and x as one of {', '.join(AXES)}")
    listed = _listed(cache, runs, names, x)
    main = _main(listed)
    every_name = [*dict.fromkeys((*main, *(name for run in listed for name in run.names)))]
    found, refused = [*names], ""
    if find:
        try:
            found = _matching(find, every_name)
        except duckdb.Error as error:
            found, refused = [], f"{find} is not a regular expression: {error}"
        names = found[:MOST_NAMES]
        listed = _listed(cache, runs, names, x)
    elif not names:
        names = main[:FIRST_NAMES] or every_name[:FIRST_NAMES]
        listed = _listed(cache, runs, names, x)
    drawn = _drawn_lines(runs, listed, names, x, bands)
    kind = "f8" if sum(len(line.points.xs) for line in drawn) < _EXACT_BELOW else "f4"
    axes: dict[bytes, int] = {}
    columns: list[dict[str, Any]] = []
    lines = []
    for line in drawn:
        points = line.points
        if (of_axis := points.xs.tobytes()) not in axes:
            axes[of_axis] = len(columns)
            columns.append(packed(points.xs, level=_LEVEL))
        is_exact = bool(np.array_equal(points.low, points.high))
        lines.append(
            {
                "run": line.run,
                "of": line.of,
                "name": line.name,
                "axis": axes[of_axis],
                "values": packed(points.mean, kind, _LEVEL),
                "low": None if is_exact else packed(points.low, kind, _LEVEL),
                "high": None if is_exact else packed(points.high, kind, _LEVEL),
                "not_finite": {"count": line.bad, "first": line.bad_at} if line.bad else None,
            }
        )
    return {
        "x": x,
        "names": every_name[:_MOST_LISTED],
        "left_out": max(0, len(every_name) - _MOST_LISTED),
        "main": len(main),
        "drawn": list(names),
        "found": len(found),
        "refused": refused,
        "runs": [_drawn(asked, run, x) for asked, run in zip(runs, listed, strict=True)],
        "axes": columns,
        "lines": lines,
    }


def _listed(cache: RangeCache, runs: Sequence[OverlaidRun], names: Sequence[str], x: str) -> list[RunRanges]:
    """Return runs with the values of names, and of their tokens if these are the axis."""
    listed = [cache.ranges(run.key, run.path, names) for run in runs]
    if x != "tokens":
        return listed
    of_runs = [token_name(run.names) for run in listed]
    return [
        cache.ranges(run.key, run.path, [*names, tokens.name]) if tokens else known
        for run, known, tokens in zip(runs, listed, of_runs, strict=True)
    ]


def _drawn_lines(
    runs: Sequence[OverlaidRun], listed: Sequence[RunRanges], names: Sequence[str], x: str, bands: Mapping[str, str]
) -> list[OverlaidLine]:
    """Return the lines of names, those of runs that share one together."""
    lines = []
    for name in names:
        members: dict[str, list[int]] = {}
        for at, (asked, run) in enumerate(zip(runs, listed, strict=True)):
            if len(run.values[name].bucket):
                members.setdefault(bands.get(asked.key, asked.key), []).append(at)
        for shared in members.values():
            values = [listed[at].values[name] for at in shared]
            points = as_band([_points(listed[at], of_run, x) for at, of_run in zip(shared, values, strict=True)])
            first = [int(of_run.bad_at[of_run.bad > 0].min()) for of_run in values if of_run.bad.any()]
            bad = sum(int(of_run.bad.sum()) for of_run in values)
            lines.append(OverlaidLine(shared[0], len(shared), name, points, bad, min(first, default=-1)))
    return lines


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names in which a pattern is found.

    By RE2, whose time is linear: with some patterns, a browser would never answer again.
    """
    with duckdb.connect(":memory:") as connection:
        query = "SELECT name FROM (SELECT unnest(?::VARCHAR[]) AS name) WHERE regexp_matches(name, ?, 'i')"
        matching = {name for (name,) in connection.execute(query, [list(names), pattern]).fetchall()}
    return [name for name in names if name in matching]


def _main(runs: Sequence[RunRanges]) -> list[str]:
    """Return the main metrics of all runs, those of one topic side by side."""
    by_topic: dict[str, dict[str, None]] = {}
    of_runs = [run.by_topic() for run in runs]
    for topic in dict.fromkeys(topic for of_run in of_runs for topic in of_run):
        by_topic[topic] = dict.fromkeys(name for of_run in of_runs for name in of_run.get(topic, ()))
    return [*dict.fromkeys(name for names in by_topic.values() for name in names)]


def _drawn(asked: OverlaidRun, run: RunRanges, x: str) -> dict[str, Any]:
    """Return what an axis has of a run: where it begins and ends, and how many steps share a point."""
    steps = run.steps
    ends = [0.0, 0.0]
    if len(steps.bucket):
        ends = [float(steps.first[0]), float(steps.last[-1])]
        if x != "step":
            ends = [0.0, float(np.nanmax(_places(run, x), initial=0.0))]
    return {"key": asked.key, "every": run.every * _together(run), "first": ends[0], "last": ends[1]}


def _together(run: RunRanges) -> int:
    """Return how many ranges share a point."""
    buckets = run.steps.bucket
    wide = int(buckets[-1] - buckets[0]) + 1 if len(buckets) else 1
    return 1 if run.every == 1 else -(-wide // _MOST_POINTS)


def _places(run: RunRanges, x: str) -> np.ndarray[Any, Any]:
    """Return where on an axis the ranges of steps are."""
    if x == "tokens":
        return tokens_at(run)
    places: np.ndarray[Any, Any] = run.steps.seconds if x == "time" else (run.steps.first + run.steps.last) / 2
    return places


def _points(run: RunRanges, ranges: NameRanges, x: str) -> LinePoints:
    """Return the points of a name: neighboring ranges together, and none where no value is finite."""
    some = ranges.number > 0
    buckets, low, high, total, number = (column[some] for column in ranges[:5])
    at = np.searchsorted(run.steps.bucket, buckets)
    places = _places(run, x)[at]
    known = np.isfinite(places)
    if not known.all():
        buckets, low, high, total, number, places = (
            column[known] for column in (buckets, low, high, total, number, places)
        )
    _, begins = np.unique(buckets // _together(run), return_index=True)
    if not len(begins):
        return LinePoints(*[np.empty(0)] * 4)
    counts = np.add.reduceat(number, begins)
    return LinePoints(
        np.add.reduceat(places * number, begins) / counts,
        np.minimum.reduceat(low, begins),
        np.maximum.reduceat(high, begins),
        np.add.reduceat(total, begins) / counts,
    )

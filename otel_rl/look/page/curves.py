"""The curves of all names: every value of a short run, the lowest and the highest of equal ranges of a long one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl.look.page.packed import packed, packed_steps
from otel_rl.look.reader.valid import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.page.steps import StepAxis
    from otel_rl.look.reader.runs import RunReader

_MAIN_POINTS, _OTHER_POINTS = 150_000, 300_000
"""Ranges of steps of all main metrics together, and of all others; each holds two values at most."""
_MOST_RANGES, _LEAST_RANGES = 20_000, 200
_MEANS = 400
"""Means of a line whose values are ranges."""
_EXACT_BELOW = 400_000
"""With fewer values, they are stored as doubles, bit for bit."""
_MOST_NAMES = 2_000
_MOST_NOT_FINITE = 50
_NAMES = """
SELECT name, bool_or(measured) AS measured, count(*) AS count, count(*) FILTER (NOT isfinite(value)) AS not_finite,
    arg_max(value, step) FILTER (NOT isfinite(value)) AS last_bad, max(step) FILTER (NOT isfinite(value)) AS last_bad_at
FROM rows GROUP BY name ORDER BY measured, min(place), name
"""
_RANGES = """
SELECT name, (step - {first}) // {every} AS bucket, sum(value) AS total, count(*) AS number,
    min(value) AS low, arg_min(step, value) AS low_at, max(value) AS high, arg_max(step, value) AS high_at
FROM rows WHERE {which} AND isfinite(value) GROUP BY name, bucket ORDER BY name, bucket
"""
_NOT_FINITE = """
SELECT name, step, value FROM rows WHERE NOT isfinite(value)
QUALIFY row_number() OVER (PARTITION BY name ORDER BY step) <= {most} ORDER BY name, step
"""


class _Line(NamedTuple):
    """The points of a name, and the means of ranges if there are many."""

    steps: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    means: dict[str, Any] | None


_NOTHING = _Line(np.empty(0, np.int64), np.empty(0), None)


def curves_of(run: RunReader, steps: StepAxis, main: Sequence[str]) -> dict[str, Any]:
    """Return the curves of all names; those of the main metrics are finer."""
    rows = run.sql(_NAMES)
    names = rows["name"].tolist()
    columns = ("measured", "count", "not_finite", "last_bad", "last_bad_at")
    known = dict(zip(names, zip(*(np.ma.getdata(rows[column]) for column in columns), strict=True), strict=True))
    first = [name for name in main if name in known]
    others = [name for name in names if name not in first][: _MOST_NAMES - len(first)]
    drawn: list[dict[str, Any]] = []
    axes: dict[bytes, int] = {}
    packed_axes: list[dict[str, Any]] = []
    first_bad = _not_finite(run) if rows["not_finite"].sum() else {}
    for group, points in ((first, _MAIN_POINTS), (others, _OTHER_POINTS)):
        every = steps.every(min(_MOST_RANGES, max(_LEAST_RANGES, points // max(1, len(group)))))
        kind = "f8" if len(group) * len(steps.numbers) < _EXACT_BELOW else "f4"
        lines = _lines(run, group, steps.first, every) if group else {}
        for name in group:
            line = lines.get(name, _NOTHING)
            key = line.steps.tobytes()
            if key not in axes:
                axes[key] = len(packed_axes)
                packed_axes.append(packed_steps(line.steps))
            measured, count, bad, last, last_at = known[name]
            not_finite = {"count": int(bad), "first": first_bad.get(name, [])}
            if bad:
                not_finite["last"] = [int(last_at), _spelled(last)]
            drawn.append(
                {
                    "name": name,
                    "measured": bool(measured),
                    "count": int(count),
                    "every": every,
                    "axis": axes[key],
                    "values": packed(line.values, kind),
                    "means": line.means,
                    "not_finite": not_finite,
                }
            )
    left_out = len(names) - len(drawn)
    return {"main": len(first), "axes": packed_axes, "lines": drawn, "left_out": left_out}


def _lines(run: RunReader, names: Iterable[str], first: int, every: int) -> dict[str, _Line]:
    """Return the points of names: in each range the lowest and the highest value, in the order of their steps."""
    which = f"name IN ({', '.join(map(literal, names))})"
    ranges = run.sql(_RANGES.format(which=which, first=first, every=every))
    low, low_at, high, high_at = (ranges[name] for name in ("low", "low_at", "high", "high_at"))
    owners = ranges["name"]
    begins = [0, *(1 + np.flatnonzero(owners[1:] != owners[:-1])).tolist(), len(owners)]
    lines = {}
    for begin, end in pairwise(begins):
        if begin == end:
            continue
        part = slice(begin, end)
        ascending = low_at[part] <= high_at[part]
        at = np.column_stack(
            (np.where(ascending, low_at[part], high_at[part]), np.where(ascending, high_at[part], low_at[part]))
        ).ravel()
        values = np.column_stack(
            (np.where(ascending, low[part], high[part]), np.where(ascending, high[part], low[part]))
        ).ravel()
        # A range with one value has it as the lowest and as the highest: it is drawn once.
        twice = np.append(False, at[1:] == at[:-1])
        means = None
        if every > 1:
            means = _means(ranges["bucket"][part], ranges["total"][part], ranges["number"][part], first, every)
        lines[owners[begin]] = _Line(at[~twice], values[~twice], means)
    return lines


def _means(
    places: np.ndarray[Any, Any], totals: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any], first: int, every: int
) -> dict[str, Any]:
    """Return the means of larger ranges, with the step in their middle."""
    together = max(1, -(-(int(places[-1]) - int(places[0]) + 1) // _MEANS))
    groups, owners = np.unique(places // together, return_inverse=True)
    wide = every * together
    return {
        "every": wide,
        "steps": packed(first + groups * wide + (wide - 1) / 2),
        "values": packed(np.bincount(owners, totals) / np.bincount(owners, numbers), "f4"),
    }


def _not_finite(run: RunReader) -> dict[str, list[tuple[int, str]]]:
    rows = run.sql(_NOT_FINITE.format(most=_MOST_NOT_FINITE))
    lines: dict[str, list[tuple[int, str]]] = {}
    for name, step, value in zip(rows["name"], rows["step"], rows["value"], strict=True):
        lines.setdefault(name, []).append((int(step), _spelled(value)))
    return lines


def _spelled(value: float) -> str:
    return "NaN" if np.isnan(value) else "inf" if value > 0 else "-inf"

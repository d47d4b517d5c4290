"""Values that do not move as they must: peaks below the mean, an evaluation that stays, a counter that starts over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import words_of
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.recorder.facts import wording
from otel_rl.recorder.stats.so_far import counts_so_far

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.look.insight.contradictions.columns import Columns

_LEAST, _NEARLY_ALL = 20, 0.95
_EVALUATIONS = 10
"""Evaluations with one value to the bit, which are too many for chance; 0 and 1 are where many values end."""
_LEARNED = 0.25
"""Part of its level by which a reward has to move, from its first third to its last one."""
_STARTS_OVER = 0.5
"""Part of its value below which a counter has started over; rows that come out of order fall by less."""
_MOST_STARTS = 3
_PEAK = re.compile(r"(^|[/_.])peak_")
_SUFFIXES = (("/max", "/mean", "/min"), ("_max", "_mean", "_min"))
"""Endings of a maximum, of the mean, and of the minimum, with which `mean_outside_its_extremes` has all three."""
_OF_TIME = frozenset(("time", "elapsed", "clock", "wall", "wallclock", "seconds"))
"""Words of times since a start, each of which begins at 0."""
_COUNTS = re.compile(r"(?:.*[/_.])?(?:total|cumulative)(?:[/_.].*)?|.*tokens_seen|.*num_tokens", re.IGNORECASE)


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    known = {*names}
    return [*(name for two in _peaks(known) for name in two), *(name for name in sorted(known) if _is_counter(name))]


def peak_below_the_mean(columns: Columns) -> Contradiction | None:
    """No peak is below the mean of the same values."""
    for peak, mean in _peaks({*columns.names}):
        rows = columns.rows(peak, mean)
        below = rows.values[0] < rows.values[1] - 1e-9 * np.abs(rows.values[1])
        if len(below) >= _LEAST and below.mean() >= _NEARLY_ALL:
            return of_rows(
                (peak, mean),
                rows.where(below),
                f"{peak} is {wording.number(float(np.median(rows.values[0])))}, below {mean}"
                f" ({wording.number(float(np.median(rows.values[1])))}), in {wording.count(int(below.sum()), 'step')}.",
                "Check what each of them counts, and over which time: these are not the same values.",
            )
    return None


def held_out_that_stays(columns: Columns) -> Contradiction | None:
    """An evaluation of weights that learn does not have one value to the bit."""
    rewards = [name for name in columns.of_topic("reward") if _has_moved(columns, name)]
    for name in columns.of_topic("evaluation"):
        values = columns.series(name).values
        if not rewards or len(values) < _EVALUATIONS or np.ptp(values) > 0 or values[0] in (0.0, 1.0):
            continue
        first, last = _thirds(columns.series(rewards[0]).values)
        found = of_rows(
            (name,),
            columns.rows(name),
            f"{name} is {wording.number(float(values[0]))} to the bit in all {len(values)} evaluations, while"
            f" {rewards[0]} went {wording.number(first)} → {wording.number(last)}.",
            "Check that the evaluation gets the weights of its step, and that its answers come from no cache.",
        )
        return replace(found, sure="likely")
    return None


def counter_that_starts_over(columns: Columns) -> Contradiction | None:
    """A count since the start never falls."""
    for name in filter(_is_counter, columns.names):
        rows = columns.rows(name)
        values = rows.values[0]
        falls = np.flatnonzero(np.diff(values) < 0) + 1
        if len(values) < _LEAST or not 1 <= len(falls) <= _MOST_STARTS or values.min() < 0:
            continue
        if all(values[at] < _STARTS_OVER * values[at - 1] for at in falls):
            at = int(falls[0])
            return of_rows(
                (name,),
                rows.where(np.arange(len(values)) >= at - 1),
                f"{name} falls {wording.number(float(values[at - 1]))} → {wording.number(float(values[at]))} at step"
                f" {wording.integer(int(rows.steps[at]))}: it starts over.",
                "Keep it in the checkpoint, as the schedule of the learning rate and the place in the data set.",
                "note",
            )
    return None


def _peaks(names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield names of peaks, each with that of the mean, or of the value that it is the peak of."""
    for name in sorted(names):
        others = [_PEAK.sub(r"\1", name)] if _PEAK.search(name) else []
        for end, mean, least in _SUFFIXES:
            base = name.removesuffix(end)
            others += [base + mean] if base != name and base + least not in names else []
        yield from ((name, other) for other in others if other in names)


def _is_counter(name: str) -> bool:
    return not words_of(name) & _OF_TIME and (counts_so_far(name) or _COUNTS.fullmatch(name) is not None)


def _has_moved(columns: Columns, name: str) -> bool:
    values = columns.series(name).values
    if len(values) < _LEAST:
        return False
    first, last = _thirds(values)
    return abs(last - first) > _LEARNED * max(abs(first), abs(last))


def _thirds(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    third = len(values) // 3
    return float(np.median(values[:third])), float(np.median(values[-third:]))

"""Changes of level in a series: when they happened, and how large they are.

Splits a series at its likeliest change of level, as `level_test` has it, and goes on in both parts. A level that lasts
for a short time is hidden by the whole series, so that halves, quarters and eighths are looked at too (Kovács,
Bühlmann, Li and Munk 2023, "Seeded binary segmentation", Biometrika 110), at a tenth of the chance of a false alarm.
A series without any change of level may still go from one to another bit by bit, as `ramps` has it. Outliers, such as
steps with an evaluation, are cut before.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.level_test import CHANCE, LEAST, NOTHING, RISE, places_of_change
from otel_rl.look.insight.ramps import ramp
from otel_rl.look.insight.series import blocks, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.look.insight.series import Floats, Integers, Series

_MOST_BLOCKS = 1024
_NEIGHBORS = 7
"""Values whose median a value is compared with, to see whether it is an outlier."""
_FAR = 4.0
"""Standard deviations beyond which a value is cut."""
_BESIDE = 4
"""Values before and after a change that are compared, to see whether it is sudden."""
_SUDDEN = 8.0
"""How much larger a sudden change is than most differences of neighbors; 8 times their spread, without a sign."""
_MOST_DEEP = 6
_PARTS = 22
"""Halves, quarters and eighths that overlap by half."""
_OF_PARTS = 0.1
"""Share of the chance of a false alarm that all parts have together."""
_OF_RAMPS = 0.1
"""Share of it that ramps have."""
_LOOKS, _EARLY_LOOKS, _EARLY = 8.0, 48.0, 60
"""The chance of a false alarm is divided by this while a run goes on, and by the second number in its first steps."""
_AGAIN = 1.25
"""A run that goes on is looked at again when it has so many times the steps: each look can be wrong."""


class Shift(NamedTuple):
    """A change of level."""

    step: int  # the first step of the new level; of a rise, the one in the middle
    before: float  # median of the level before; of a rise, of its first fifth
    after: float  # median of the new level; of a rise, of its last fifth
    first: int  # the first step of the level before
    last: int  # the last step of the new level
    is_rise: bool = False  # whether it comes bit by bit, up or down


def shifts(series: Series, least: float, *, relative: bool = True, is_live: bool = False) -> list[Shift]:
    """Return the changes of level, in the order of their steps.

    Args:
        series: The series; what is not finite is left out.
        least: The smallest change that matters: as a fraction of the smaller level if `relative`, else itself.
        relative: If true, the logarithms are compared, as for times; values that are not positive have no changes.
        is_live: Whether the series goes on, and is looked at again and again.
    """
    steps, values = series.finite.first(looked_at(len(series.finite.steps))) if is_live else series.finite
    if len(values) < 2 * LEAST or (relative and not (values > 0).all()):
        return []
    compared = np.log(values) if relative else values
    smallest = math.log1p(least) if relative else least
    cut = _without_outliers(compared)
    means, length = blocks(cut, _MOST_BLOCKS)
    looks = 1.0 if not is_live else _EARLY_LOOKS if len(values) < _EARLY else _LOOKS
    places, rises = _Splits(CHANCE / looks).of(means)
    ramped = ramp(means, _OF_RAMPS * CHANCE / looks) if len(places) == 2 and not rises else None
    ends = [len(values) if place == len(means) else place * length for place in places]
    ends = [ends[0], *(_refined(cut, place, length) for place in ends[1:-1]), ends[-1]]
    risen = [(ends[places.index(begin)], ends[places.index(end)]) for begin, end in rises]
    risen += [_around(*ramped, len(means), length)] if ramped else []
    changes = [_rise(steps, values, begin, end) for begin, end in risen]
    changes = [rise for rise in changes if _size(rise, relative=relative) >= smallest]
    kept = _large(compared, ends, smallest)
    for begin, place, end in zip(kept, kept[1:], kept[2:], strict=False):
        levels = float(np.median(values[begin:place])), float(np.median(values[place:end]))
        changes.append(Shift(int(steps[place]), *levels, int(steps[begin]), int(steps[end - 1])))
    return sorted(changes)


def looked_at(count: int) -> int:
    """Return how many steps of a run that goes on are looked at, of so many that it has."""
    known = 2 * LEAST
    while (more := math.ceil(_AGAIN * known)) <= count:
        known = more
    return min(known, count)


class _Splits:
    """Splits a series where its level changes."""

    def __init__(self, chance: float) -> None:
        self._chance = chance

    def of(self, values: Floats) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the bounds of the levels, and which of them rise, or fall, bit by bit."""
        rises: list[tuple[int, int]] = []
        places = [0, *self._inside(values, 0, _MOST_DEEP, rises), len(values)]
        return places, [rise for rise in rises if {*rise} <= {*places}]

    def _inside(self, values: Floats, offset: int, deep: int, rises: list[tuple[int, int]]) -> Iterator[int]:
        if not deep:
            return
        place = int(places_of_change(values[None, :], (1 - _OF_PARTS) * self._chance)[0])
        if (
            place > RISE
            and min(place, len(values) - place) < 2 * LEAST < len(values) // 3
            and not _is_sudden(values, place)
        ):
            place = NOTHING
        place = self._of_parts(values) if place == NOTHING else place
        if place == NOTHING:
            return
        if place == RISE:
            rises.append((offset, offset + len(values)))
            return
        yield from self._inside(values[:place], offset, deep - 1, rises)
        yield offset + place
        yield from self._inside(values[place:], offset + place, deep - 1, rises)

    def _of_parts(self, values: Floats) -> int:
        """Return the change of the first part that has one, the larger parts first; one that rises is not the whole."""
        count = len(values)
        length = count // 2
        while length >= 4 * LEAST and length * 8 >= count:
            parts = np.lib.stride_tricks.sliding_window_view(values, length)[:: max(1, length // 2)]
            places = places_of_change(parts, _OF_PARTS * self._chance / _PARTS)
            for part in np.flatnonzero((places != NOTHING) & (places != RISE)):
                place = int(part) * max(1, length // 2) + int(places[part])
                if _is_sudden(values, place):
                    return place
            length //= 2
        return NOTHING


def _is_sudden(values: Floats, place: int) -> bool:
    """Return whether values change at a place more than anywhere else: slow noise has levels in its parts, too."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, _BESIDE), axis=1)
    jumps = np.abs(medians[_BESIDE:] - medians[:-_BESIDE])
    near = jumps[max(0, place - _BESIDE - 2) : place - _BESIDE + 3]
    return bool(near.size and near.max() > _SUDDEN * spread(jumps))


def _without_outliers(values: Floats) -> Floats:
    """Return values that are near the median of their neighbors; levels keep their edges."""
    padded = np.pad(values, _NEIGHBORS // 2, mode="edge")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, _NEIGHBORS), axis=1)
    most = _FAR * spread(values - middle)
    return np.clip(values, middle - most, middle + most)


def _refined(values: Floats, place: int, length: int) -> int:
    """Return the exact place of a change that was found among blocks."""
    if length == 1:
        return place
    begin, end = max(0, place - 4 * length), min(len(values), place + 4 * length)
    near = values[begin:end]
    levels = np.median(values[begin : place - length]), np.median(values[place + length : end])
    middle, sign = (levels[0] + levels[1]) / 2, 1 if levels[1] > levels[0] else -1
    sums = np.cumsum(np.sign(near - middle) * sign)  # lowest where values change from one side to the other
    return begin + int(np.argmin(sums)) + 1


def _around(begin: int, end: int, count: int, length: int) -> tuple[int, int]:
    """Return the bounds of a ramp among values, with a fifth of them before it and a fifth behind it."""
    margin = max(LEAST // 2, (end - begin) // 3)
    return max(0, begin - margin) * length, min(count, end + margin) * length


def _rise(steps: Integers, values: Floats, begin: int, end: int) -> Shift:
    fifth = max(1, (end - begin) // 5)
    levels = float(np.median(values[begin : begin + fifth])), float(np.median(values[end - fifth : end]))
    return Shift(int(steps[(begin + end) // 2]), *levels, int(steps[begin]), int(steps[end - 1]), is_rise=True)


def _size(shift: Shift, *, relative: bool) -> float:
    return abs(math.log(shift.after / shift.before) if relative else shift.after - shift.before)


def _large(values: Floats, places: list[int], smallest: float) -> list[int]:
    """Leave out the smallest changes until all matter."""
    places = [*places]
    while len(places) > 2:
        levels = [float(np.median(values[a:b])) for a, b in pairwise(places)]
        gaps = [abs(after - before) for before, after in pairwise(levels)]
        least = min(range(len(gaps)), key=gaps.__getitem__)
        if gaps[least] >= smallest:
            break
        del places[least + 1]
    return places

"""Changes of level in a series: when they happened, and how large they are.

Splits a series where its cumulative sum is farthest from a straight line, tests the split, and goes on in both parts.
The distance, divided by the long-run standard deviation, is that of a Brownian bridge if nothing changed; values that
are correlated from step to step are allowed for. Outliers, such as steps with an evaluation, are cut before.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.series import long_run_variance, spread

if TYPE_CHECKING:
    from otel_rl.look.insight.series import Floats, Series

_MOST_BLOCKS = 1024
_LEAST = 8
"""Steps that each of two levels lasts, at the least."""
_CRITICAL = 2.2
"""The distance that a bridge exceeds in about 1 of 8,000 series."""
_SMALL_SAMPLES = 3.0
"""How much larger the distance has to be where few degrees of freedom are left, times their inverse."""
_FAR = 15.0
"""Standard deviations beyond which a value is cut; of noise alone, so that a change of level is not."""
_MOST_DEEP = 6
_NEIGHBORS = 4
_SUDDEN = 8.0
"""How much larger a sudden change is than most differences of neighbors; 8 times their spread, without a sign."""


class Shift(NamedTuple):
    """A change of level."""

    step: int  # the first step of the new level
    before: float  # median of the level before
    after: float  # median of the new level
    first: int  # the first step of the level before
    last: int  # the last step of the new level


def shifts(series: Series, least: float, *, relative: bool = True) -> list[Shift]:
    """Return the changes of level, in the order of their steps.

    Args:
        series: The series; what is not finite is left out.
        least: The smallest change that matters: as a fraction of the smaller level if `relative`, else itself.
        relative: If true, the logarithms are compared, as for times; values that are not positive have no changes.
    """
    steps, values = series.finite
    if len(values) < 2 * _LEAST or (relative and not (values > 0).all()):
        return []
    compared = np.log(values) if relative else values
    smallest = math.log1p(least) if relative else least
    length = max(1, math.ceil(len(compared) / _MOST_BLOCKS))
    whole = len(compared) // length * length
    medians = np.median(compared[:whole].reshape(-1, length), axis=1)
    places = [_refined(compared, place * length, length) for place in _splits(medians, 0, _MOST_DEEP)]
    places = _large(compared, [0, *sorted(places), len(values)], smallest)
    changes = []
    for n, place in enumerate(places[1:-1], 1):
        before, after = values[places[n - 1] : place], values[place : places[n + 1]]
        levels = float(np.median(before)), float(np.median(after))
        changes.append(Shift(int(steps[place]), *levels, int(steps[places[n - 1]]), int(steps[places[n + 1] - 1])))
    return changes


def _splits(values: Floats, offset: int, deep: int) -> list[int]:
    """Return where a series has changes.

    A level that lasts for a short time looks like noise in the whole series, so that parts of it are looked at too:
    halves, quarters and eighths that overlap (Kovács, Bühlmann, Li and Munk 2023, "Seeded binary segmentation",
    Biometrika 110). Slow noise has levels in its parts too, so that a change of a part has to be sudden.
    """
    count = len(values)
    if count < 2 * _LEAST or not deep:
        return []
    place = _split(values)
    length, jumps = count // 2, _jumps(values) if place is None else values
    while place is None and length >= 4 * _LEAST and length * 8 >= count:
        begins = range(0, count - length + 1, max(1, length // 2))
        splits = ((begin, _split(values[begin : begin + length])) for begin in begins)
        places = (begin + inside for begin, inside in splits if inside is not None)
        place = next(
            (place for place in places if jumps[max(0, place - 2) : place + 3].max() > _SUDDEN * spread(jumps)), None
        )
        length //= 2
    if place is None:
        return []
    left = _splits(values[:place], offset, deep - 1)
    return [*left, offset + place, *_splits(values[place:], offset + place, deep - 1)]


def _jumps(values: Floats) -> Floats:
    """Return by how much the median of some values differs from that of as many values before them."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, _NEIGHBORS), axis=1)
    sizes: Floats = np.zeros(len(values))
    sizes[_NEIGHBORS : len(values) - _NEIGHBORS + 1] = np.abs(medians[_NEIGHBORS:] - medians[:-_NEIGHBORS])
    return sizes


def _split(values: Floats) -> int | None:
    """Return where a series changes most, if that is more than noise."""
    count = len(values)
    noise, middle = _noise(values), float(np.median(values))
    noise = min(noise, spread(values) or math.inf)
    cut = np.clip(values, middle - _FAR * noise, middle + _FAR * noise) if noise else values
    sums = np.cumsum(cut - cut.mean())[:-1]
    places = np.arange(1, count)
    balance = np.sqrt(places / count * (1 - places / count))  # without it, changes near an end are moved inward
    allowed = (places >= _LEAST) & (places <= count - _LEAST)
    place = int(np.argmax(np.where(allowed, np.abs(sums) / balance, -1.0))) + 1
    before, after = cut[:place], cut[place:]
    if np.median(after) == np.median(before):
        return None
    residuals = np.concatenate([before - np.median(before), after - np.median(after)])
    variance, freedom = long_run_variance(residuals)
    distance = abs(float(sums[place - 1])) / math.sqrt(count)
    least = _CRITICAL * (1 + _SMALL_SAMPLES / freedom) * math.sqrt(variance)
    return place if distance > least + 1e-12 else None


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


def _noise(values: Floats) -> float:
    """Return the standard deviation of the noise, by the differences of neighbors, which changes of level leave out."""
    return spread(np.diff(values)) / math.sqrt(2)


def _large(values: Floats, places: list[int], smallest: float) -> list[int]:
    """Leave out the smallest changes until all matter."""
    while len(places) > 2:
        levels = [float(np.median(values[a:b])) for a, b in pairwise(places)]
        gaps = [abs(after - before) for before, after in pairwise(levels)]
        least = min(range(len(gaps)), key=gaps.__getitem__)
        if gaps[least] >= smallest:
            break
        del places[least + 1]
    return places

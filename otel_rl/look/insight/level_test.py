"""A test of whether the level of a series changed, as sensitive as one can be that knows neither when nor how.

Generalized least squares: values that lean on each other are whitened with a correlation that is estimated, with and
without a change, and a step at each place and a steady rise are tried. The statistic is twice the logarithm of how much
likelier the series is with the best of them. Its distribution without a change depends on length and correlation, so
thresholds come from simulated series: `python -m benchmarks.level_thresholds` writes `level_thresholds.json`.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from otel_rl.look.insight.slow_noise import may_be_slow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from otel_rl.look.insight.series import Floats, Integers

    Flags = NDArray[np.bool_]

CHANCE = 0.01
"""The chance of a false alarm that the thresholds are of."""
CORRELATIONS = (0.0, 0.15, 0.3, 0.45, 0.55, 0.65, 0.75, 0.82, 0.88, 0.93, 0.97)
"""The correlations that are tried. Values that alternate are taken as independent, which is cautious."""
LEAST = 8
"""Steps that each of two levels lasts, at the least."""
_OF_RISES = 0.8
"""Part of the chance of a false alarm that is that of a rise."""
MOST_IN_BLOCK, LEAST_BLOCKS, _CHANCE_OF_BLOCKS, _CHANCE_OF_SLOW_BLOCKS = 8, 24, 0.1, 0.01
"""Values of a block, blocks of a series, and the chances of a false alarm among means of blocks, also of slow noise."""
_FAR = 4.0
"""Standard deviations of noise beyond which slow noise does not wander in a short series."""
ROUNDING = 1e-14
"""Part of the variance that is rounding."""
RISE, NOTHING = 0, -1
"""The place of a steady rise or fall, which has none, and that of no change."""


class LevelChange(NamedTuple):
    """Of each series: the statistic, the first place of the new level or `RISE`, its correlation and direction."""

    statistic: Floats
    place: Integers
    correlation: Floats
    is_up: Flags


class Thresholds(msgspec.Struct, frozen=True):
    """Statistics that series without a change exceed with `CHANCE`, by length and estimated correlation."""

    lengths: list[int]  # lengths of series
    correlations: list[list[float]]  # for each length, estimated correlations, in their order
    thresholds: list[list[float]]  # for each of them the threshold
    slopes: list[list[float]]  # and by how much it rises while the chance falls by a factor of e

    def at(self, length: int, correlation: Floats, chance: float) -> Floats:
        """Return the threshold of each series of this length for a chance of a false alarm, by its correlation."""
        rarer, place = math.log(CHANCE / chance), float(np.interp(length, self.lengths, range(len(self.lengths))))
        before, after = int(place), math.ceil(place)
        near, far = (
            np.interp(correlation, self.correlations[n], self.thresholds[n])
            + rarer * np.interp(correlation, self.correlations[n], self.slopes[n])
            for n in (before, after)
        )
        threshold: Floats = near + (place - before) * (far - near)
        return threshold


@cache
def thresholds() -> Thresholds:
    """Return the simulated thresholds."""
    return msgspec.json.decode(Path(__file__).with_name("level_thresholds.json").read_bytes(), type=Thresholds)


def places_of_change(values: Floats, chance: float) -> Integers:
    """Return the first place of the new level of each line, `RISE`, or `NOTHING` if no change is certain.

    Most of the chance of an error is spent on rises: to miss steps that become slower costs more than faster ones.
    """
    lines, length = values.shape
    if length < 2 * LEAST:
        return np.full(lines, NOTHING)
    place = _certain(values, chance)
    # Slow noise under quick noise looks less correlated than it is; means of blocks show how much it is.
    for line in np.flatnonzero(place != NOTHING):
        at = int(place[line])
        room = length if at == RISE else min(at, length - at)
        block = min(MOST_IN_BLOCK, length // LEAST_BLOCKS, room // LEAST)
        noise = _without(values[line], at)
        is_slow = may_be_slow(noise)
        if block > 1:
            of_blocks = _CHANCE_OF_SLOW_BLOCKS if is_slow else _CHANCE_OF_BLOCKS
            wanders = _certain(blocks_of(values[line : line + 1], block), of_blocks)[0] == NOTHING
        else:  # too short for means: a change that is many times the noise is one, however slow that is
            wanders = is_slow and np.ptp(values[line] - noise) < _FAR * noise.std()
        if wanders:
            place[line] = NOTHING
    return place


def _without(values: Floats, place: int) -> Floats:
    """Return values without a change at a place."""
    if place == RISE:
        steps = np.arange(len(values))
        return values - np.polyval(np.polyfit(steps, values, 1), steps)
    levels = np.concatenate([np.full(len(part), part.mean()) for part in (values[:place], values[place:])])
    noise: Floats = values - levels
    return noise


def _certain(values: Floats, chance: float) -> Integers:
    change, length, known = likeliest(values), values.shape[1], thresholds()
    rising, falling = (known.at(length, change.correlation, 2 * share * chance) for share in (_OF_RISES, 1 - _OF_RISES))
    return np.where(change.statistic > np.where(change.is_up, rising, falling), change.place, NOTHING)


def blocks_of(values: Floats, length: int) -> Floats:
    """Return the means of blocks of each line; what is left over is left out."""
    whole = values.shape[1] // length * length
    means: Floats = values[:, :whole].reshape(len(values), -1, length).mean(axis=2)
    return means


def likeliest(values: Floats) -> LevelChange:
    """Return the likeliest change of each series, a line of `values` each."""
    centered = values - values.mean(axis=1, keepdims=True)
    count = values.shape[1]
    floor = ROUNDING * (np.square(centered).sum(axis=1) + np.square(values).max(axis=1)) + 1e-300
    places = np.arange(LEAST, count - LEAST + 1)
    # A level that lasts for few steps has many places where it could be by chance.
    odds = np.append(np.log(4 * places * (count - places) / count**2), 0.0)
    lines = np.arange(len(values))
    without = np.full(len(values), -np.inf)
    best = np.full(len(values), -np.inf)
    place, correlation = np.zeros(len(values), np.int64), np.zeros(len(values))
    is_up = np.zeros(len(values), bool)
    for rho in CORRELATIONS:
        rest, roots = explained(centered, rho, places)
        bonus = 0.5 * math.log1p(-(rho**2))
        without = np.maximum(without, bonus - count / 2 * np.log(np.maximum(rest, floor)))
        left = np.maximum(rest[:, None] - np.square(roots), floor[:, None])
        likelihood = bonus - count / 2 * np.log(left) + odds
        at = likelihood.argmax(axis=1)
        is_better = likelihood[lines, at] > best
        best = np.where(is_better, likelihood[lines, at], best)
        place = np.where(is_better, np.append(places, RISE)[at], place)
        correlation = np.where(is_better, rho, correlation)
        is_up = np.where(is_better, roots[lines, at] > 0, is_up)
    return LevelChange(2 * (best - without), place, correlation, is_up)


def explained(values: Floats, rho: float, places: Integers) -> tuple[Floats, Floats]:
    """Return the whitened squares around a level, and the roots of what each step, and a rise, explain."""
    count, keep, first = values.shape[1], 1 - rho, math.sqrt(1 - rho**2)
    white = values.copy()
    white[:, 1:] -= rho * values[:, :-1]
    white[:, 0] *= first
    level = np.full(count, keep)
    level[0] = first
    line = np.linspace(-1, 1, count)
    rise = np.append(first * line[0], line[1:] - rho * line[:-1])
    power, of_level = level @ level, white @ level
    rest = np.square(white).sum(axis=1) - of_level**2 / power
    after = keep * (white.sum(axis=1, keepdims=True) - np.cumsum(white, axis=1))[:, places] + white[:, places]
    behind = (count - 1 - places) * keep**2
    along, squares = behind + keep, behind + 1  # of a step, with the level and with itself
    roots = np.empty((len(values), len(places) + 1))
    roots[:, :-1] = (after - np.outer(of_level, along / power)) / np.sqrt(squares - along**2 / power)
    slope = rise @ rise - (level @ rise) ** 2 / power
    roots[:, -1] = (white @ rise - of_level * (level @ rise) / power) / math.sqrt(slope)
    return rest, roots

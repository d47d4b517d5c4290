"""A test of whether a series goes from one level to another bit by bit: a ramp, which begins and ends anywhere.

It has the model and the thresholds of `level_test`, of which neither a step nor a rise from begin to end fits a ramp:
what they leave looks like noise that is slow.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.level_test import (
    CORRELATIONS,
    LEAST,
    LEAST_BLOCKS,
    MOST_IN_BLOCK,
    ROUNDING,
    blocks_of,
    thresholds,
)
from otel_rl.look.insight.slow_noise import may_be_slow

if TYPE_CHECKING:
    from otel_rl.look.insight.series import Floats

_PARTS = 8
"""A ramp begins and ends at an eighth of the series."""
_SHORTEST = 12 * LEAST
"""In shorter series, slow noise looks like a ramp too often."""
_CHANCE_OF_BLOCKS, _CHANCE_OF_SLOW_BLOCKS = 0.01, 0.002
"""The chances of a false alarm among means of blocks, and where noise may be slow."""


def ramp(values: Floats, chance: float) -> tuple[int, int] | None:
    """Return where the likeliest ramp begins and ends; `None` if none is certain.

    Slow noise under quick noise looks less correlated than it is; means of blocks show how much it is.
    """
    if len(values) < _SHORTEST or (bounds := _certain(values, chance)) is None:
        return None
    block = min(MOST_IN_BLOCK, len(values) // LEAST_BLOCKS)
    means = blocks_of(values[None, :], block)[0]
    of_blocks = _CHANCE_OF_SLOW_BLOCKS if may_be_slow(_without(values, bounds)) else _CHANCE_OF_BLOCKS
    return bounds if _certain(means, of_blocks) is not None else None


def _without(values: Floats, bounds: tuple[int, int]) -> Floats:
    """Return values without a ramp between two places."""
    first, last = bounds
    course = np.clip((np.arange(len(values)) - first) / (last - first), 0, 1)
    columns = np.stack([np.ones(len(values)), course], axis=1)
    noise: Floats = values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]
    return noise


def _certain(values: Floats, chance: float) -> tuple[int, int] | None:
    statistic, correlation, bounds = _likeliest(values)
    needed = thresholds().at(len(values), np.array([correlation]), chance)[0]
    return bounds if statistic > needed else None


def _likeliest(values: Floats) -> tuple[float, float, tuple[int, int]]:
    """Return the statistic of the likeliest ramp, its correlation and bounds."""
    count = len(values)
    bounds, shapes = _shapes(count)
    centered = values - values.mean()
    floor = ROUNDING * (centered @ centered + np.square(values).max()) + 1e-300
    without, best, found = -math.inf, -math.inf, (0.0, bounds[0])
    for rho in CORRELATIONS:
        level, line = _white(np.ones(count), rho), _white(centered, rho)
        bonus = 0.5 * math.log1p(-(rho**2))
        rest = line @ line - (line @ level) ** 2 / (level @ level)
        without = max(without, bonus - count / 2 * math.log(max(rest, floor)))
        white = _white(shapes, rho)
        white -= np.outer(white @ level, level / (level @ level))
        left = np.maximum(rest - np.square(white @ line) / np.square(white).sum(axis=1), floor)
        likelihood = bonus - count / 2 * np.log(left)
        at = int(likelihood.argmax())
        if likelihood[at] > best:
            best, found = float(likelihood[at]), (rho, bounds[at])
    return 2 * (best - without), *found


@lru_cache(16)
def _shapes(count: int) -> tuple[list[tuple[int, int]], Floats]:
    """Return the bounds of all ramps of a length, but of the one over all of it, and their courses from 0 to 1."""
    edges = [round(count * part / _PARTS) for part in range(_PARTS + 1)]
    bounds = [(a, b) for n, a in enumerate(edges) for b in edges[n + 1 :] if (a, b) != (0, count)]
    courses: Floats = np.array([np.clip((np.arange(count) - a) / (b - a), 0, 1) for a, b in bounds])
    return bounds, courses


def _white(values: Floats, rho: float) -> Floats:
    """Return values, or lines of them, without what they lean on each other."""
    white: Floats = values.copy()
    white[..., 1:] -= rho * values[..., :-1]
    white[..., 0] *= math.sqrt(1 - rho**2)
    return white

"""A test for upward drift in a series, valid for noise that is correlated from one level to the next."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_T95 = {3: 2.353, 5: 2.015, 7: 1.895, 9: 1.833, 11: 1.796, 13: 1.771, 15: 1.753}
"""The 95 % quantile of Student's t, by degrees of freedom."""


class Drift(NamedTuple):
    """The drift of a series, and the probability of such a drift by chance."""

    slope: float  # mean change from one level to the next
    low: float  # lower bound of the slope, one-sided 95 %
    chance: float  # probability of this or a greater slope in a series without drift (p-value)


def drift(levels: Sequence[float], blocks: int) -> Drift:
    """Return the drift of a series, tested on the averages of blocks of equal length.

    The levels of each block are averaged, and Student's one-sided t-test is applied to the changes between the
    averages of neighboring blocks. Hypothesis: the levels are a random walk whose changes are independent, with
    mean 0 and finite variance. The changes of its block averages are correlated (Working 1960, "Note on the
    correlation of first differences of averages in a random chain", Econometrica 28: 1/4 for long blocks), so
    the variance of their mean is 3b²/(2b² + 1) times that of independent ones, with b levels in each block.
    A stationary series reverts to its mean, and its changes cancel each other: for it the test is conservative.

    Args:
        levels: The series; its length is a multiple of `blocks`.
        blocks: An odd number of blocks from 5 to 17, so that the degrees of freedom are odd.
    """
    length = len(levels) // blocks
    averages = [math.fsum(levels[at : at + length]) / length for at in range(0, blocks * length, length)]
    changes = [after - before for before, after in pairwise(averages)]
    count = len(changes)
    mean = (averages[-1] - averages[0]) / count
    variance = math.fsum((change - mean) ** 2 for change in changes) / (count - 1)
    error = math.sqrt(variance / count * 3 * length**2 / (2 * length**2 + 1))
    chance = _exceeded(mean / error, count - 1) if error else float(mean <= 0)
    return Drift(mean / length, (mean - _T95[count - 1] * error) / length, chance)


def _exceeded(t: float, freedom: int) -> float:
    """Return P(T > t) of Student's t for odd degrees of freedom (Abramowitz & Stegun 26.7.3)."""
    angle = math.atan2(t, math.sqrt(freedom))
    term = series = math.cos(angle) if freedom > 1 else 0.0
    for n in range(2, freedom - 1, 2):
        term *= n / (n + 1) * math.cos(angle) ** 2
        series += term
    return 0.5 - (angle + math.sin(angle) * series) / math.pi

"""Which steps are slow, and which are usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_FENCE = 1.5
"""A step is slow if it is beyond the upper quartile by more than so many times the distance of the quartiles."""
_LEAST = 0.1
"""And if it takes longer than the median by this fraction."""
_NEAR = 200
"""Steps among which the usual ones of a step are chosen: in a long run, the times of all change."""
MOST_SLOW = 8
"""Slow steps that are explained together."""


class Wall(NamedTuple):
    """The number, the begin and the end of a step, in nanoseconds."""

    step: int
    began: int
    ended: int

    @property
    def seconds(self) -> float:
        """Its wall time."""
        return (self.ended - self.began) / 1e9


def slow_of(walls: Sequence[Wall]) -> list[Wall]:
    """Return the slowest steps, the slowest first; none if no step is much slower than the others."""
    if len(walls) < 4:
        return []
    times = np.array([one.seconds for one in walls])
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    limit = max(high + _FENCE * (high - low), middle * (1 + _LEAST))
    slow = [one for one in walls if one.seconds > limit]
    return sorted(slow, key=lambda one: -one.seconds)[:MOST_SLOW]


def usual_of(walls: Sequence[Wall], explained: Sequence[Wall], most: int) -> list[Wall]:
    """Return usual steps: of those near the explained ones, the middle half by their time, evenly."""
    if not explained:
        return []
    center = float(np.median([one.step for one in explained]))
    without = {one.step for one in explained}
    near = sorted((one for one in walls if one.step not in without), key=lambda one: abs(one.step - center))[:_NEAR]
    if not near:
        return []
    low, high = np.quantile([one.seconds for one in near], [0.25, 0.75])
    middle = [one for one in near if low <= one.seconds <= high] or near
    picked = np.unique(np.linspace(0, len(middle) - 1, min(most, len(middle))).round().astype(int))
    return sorted(middle[n] for n in picked)

"""By how much ranks fall behind the others in a phase.

A rank that is slow before a collective makes all others wait in it, so that durations blame the wrong ranks. The delay
is by how much a rank becomes later than the others between entering and leaving a phase. One that waits does not.
"""

from __future__ import annotations

from statistics import median, median_low
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Stay = tuple[int, int]
"""When a rank entered and left a phase, in nanoseconds since it entered its first phase of the step."""


def delays(stays: Mapping[int, Stay]) -> dict[int, float]:
    """Return by how many seconds each rank became later than the median of the ranks while it was in a phase.

    Of two ranks, it is compared with the one that is earlier.
    """
    middle = median_low if len(stays) == 2 else median
    entering = middle(entered for entered, _ in stays.values())
    leaving = middle(left for _, left in stays.values())
    return {
        rank: (max(0.0, left - leaving) - max(0.0, entered - entering)) / 1e9 for rank, (entered, left) in stays.items()
    }

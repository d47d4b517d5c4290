"""The change that all phases share, which may be the machine's rather than the program's.

Two runs of one program on a machine that others use, too, differ in all phases alike, by more than the steps of either
run tell. A change of the program rarely makes all of its phases slower by one factor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.compare.comparison import PhaseDifference

_LEAST = 0.05
"""The smallest part of the time of all phases that a phase needs to count."""


def shared_by(phases: Sequence[PhaseDifference]) -> float:
    """Return the logarithm of the factor by which phases take longer or shorter; 0 if they do not change alike.

    It is the middle one of their factors, the smaller one of two: a machine slows phases by different factors, and a
    change of the program few of them. Without two phases that count, it is unknown: 0.
    """
    whole = sum(phase.base for phase in phases)
    factors = [math.log(phase.new / phase.base) for phase in phases if phase.base > _LEAST * whole and phase.new > 0]
    if len(factors) < 2 or min(factors) * max(factors) <= 0:
        return 0.0
    return sorted(factors, key=abs)[(len(factors) - 1) // 2]


def all_phases(shared: float) -> str:
    """Return in words what all phases share."""
    return f"all phases take {'longer' if shared > 0 else 'less'}, about {wording.tenths(abs(math.expm1(shared)))} %"

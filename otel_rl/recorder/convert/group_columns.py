"""Columns of completions that compare those of one group: ranks of rewards, and shares in the update."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def reward_ranks(rewards: Sequence[float]) -> list[int]:
    """Return the rank of each reward in its group: 1 is the highest; ties go by index; NaN comes last."""
    keys = [(math.isnan(reward), 0.0 if math.isnan(reward) else -reward) for reward in rewards]
    ranks = [0] * len(keys)
    for rank, index in enumerate(sorted(range(len(keys)), key=keys.__getitem__), 1):
        ranks[index] = rank
    return ranks


def update_mass_proxy(weights: Sequence[float]) -> list[float]:
    """Return the share of each sample in the update of its group.

    If some weights are positive, negative ones have share 0. If none is positive, absolute values are used. The share
    is NaN if all weights are zero, and for a weight that is not finite.
    """
    finite = [weight for weight in weights if math.isfinite(weight)]
    positive = any(weight > 0 for weight in finite)
    masses = [
        (max(weight, 0.0) if positive else abs(weight)) if math.isfinite(weight) else math.nan for weight in weights
    ]
    largest = max((mass for mass in masses if mass == mass), default=0.0)  # noqa: PLR0124 # NaN alone is not itself
    if not largest:
        return [math.nan] * len(masses)
    whole = sum(mass / largest for mass in masses if not math.isnan(mass))
    return [mass / largest / whole for mass in masses]

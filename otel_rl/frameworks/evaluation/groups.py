"""Statistics of GRPO groups (the completions of one prompt), as MaxEnt-GRPO defines them.

Fractions are returned as numerator and denominator, so that they can be added up over ranks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.convert.group_columns import reward_ranks, update_mass_proxy
from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["reward_ranks", "update_mass_proxy"]  # with the other functions of a group, for those who import them here
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_ZERO = 1e-8


class Share(NamedTuple):
    """A numerator and a denominator; both are added up over ranks before the division."""

    part: float
    whole: float

    def __add__(self, other: object) -> Share:
        """Return the share over both; unlike with tuples, this is a sum."""
        if not isinstance(other, Share):
            return NotImplemented
        return Share(self.part + other.part, self.whole + other.whole)

    @property
    def value(self) -> float | None:
        """The fraction; `None` if the denominator is 0."""
        return self.part / self.whole if self.whole > 0 else None


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation of the population; (0, 0) without values."""
    return (statistics.mean(values), statistics.std(values)) if values else (0.0, 0.0)


def quantiles(values: Sequence[float], qs: Sequence[float] = QUANTILES) -> dict[str, float]:
    """Return quantiles by name, such as `p05`, interpolated linearly; none without values."""
    ordered = sorted(values)
    return {statistics.quantile_key(q): statistics.quantile(ordered, q) for q in qs} if ordered else {}


def zero_variance(advantages: Sequence[Sequence[float]]) -> Share:
    """Return the share of groups whose advantages are all 0 (less than 1e-8); empty groups do not count."""
    groups = [group for group in advantages if len(group)]
    return Share(sum(all(abs(advantage) < _ZERO for advantage in group) for group in groups), len(groups))


def entropy(weights: Sequence[float]) -> float:
    """Return the entropy in nats of non-negative weights, normalized to sum 1; 0 without weights."""
    total = math.fsum(weights)
    if total <= 0:
        return 0.0
    return -math.fsum(p * math.log(p) for weight in weights if (p := weight / total) > 0)


def normalized_entropy(weights: Sequence[float]) -> float:
    """Return the entropy divided by the maximum for this number of weights; 0 for fewer than two weights."""
    return entropy(weights) / math.log(len(weights)) if len(weights) > 1 else 0.0


def policy_entropy(entropies: Sequence[float], tokens: Sequence[float]) -> Share:
    """Return the sum of entropies over the sum of tokens."""
    return Share(math.fsum(entropies), math.fsum(tokens))


def clipped_fraction(clipped: float, total: float) -> float:
    """Return the fraction of completions that were truncated, limited to 0 to 1."""
    return min(1.0, max(0.0, clipped / total)) if total > 0 else 0.0


def per_token(value: float, tokens: float) -> float | None:
    """Return a loss or a divergence per token, which may be negative; `None` without tokens."""
    return value / tokens if tokens > 0 else None


class EntropyBonus(NamedTuple):
    """The part of an entropy bonus in the mean reward."""

    without: float
    """The mean reward without the bonus."""
    of_base: float
    """The bonus divided by the reward without it."""
    of_total: float
    """The bonus divided by the reward."""


def entropy_bonus(reward: float, bonus: float) -> EntropyBonus:
    """Return the part of a bonus in a mean reward that includes it; divisors are at least 1e-8."""
    without = reward - bonus
    return EntropyBonus(without, bonus / max(abs(without), _ZERO), bonus / max(abs(reward), _ZERO))


def epoch_progress(
    step: int,
    *,
    steps_per_epoch: int | None = None,
    num_generations: int | None = None,
    num_epochs: float | None = None,
    total_steps: int | None = None,
) -> float:
    """Return the number of passes over the data in a step, from the first known argument."""
    if steps_per_epoch:
        return step / steps_per_epoch
    if num_generations:
        return step / num_generations
    if num_epochs and total_steps:
        return step * num_epochs / total_steps
    return float(step)


def distinct(texts: Sequence[Sequence[str]], n: int) -> Share:
    """Return the share of distinct n-grams among all n-grams in the completions of a group."""
    grams = [tuple(tokens[i : i + n]) for tokens in texts for i in range(len(tokens) - n + 1)]
    return Share(len(set(grams)), len(grams))


def jaccard_distance(texts: Sequence[Sequence[str]]) -> float:
    """Return the mean over pairs of 1 - |intersection| / |union| of their token sets; 0 for fewer than two."""
    sets = [set(tokens) for tokens in texts]
    pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    apart = [1 - len(a & b) / len(a | b) if a | b else 0.0 for a, b in pairs]
    return statistics.mean(apart) if apart else 0.0


def over_groups(
    groups: Sequence[Sequence[Sequence[str]]], measure: Callable[[Sequence[Sequence[str]]], float | None]
) -> tuple[float, float]:
    """Return the means of a measure over groups: unweighted (macro), and weighted by group size (micro)."""
    measured = [(value, len(group)) for group in groups if (value := measure(group)) is not None]
    if not measured:
        return 0.0, 0.0
    values, sizes = zip(*measured, strict=True)
    return statistics.mean(values), statistics.weighted_mean(values, sizes)

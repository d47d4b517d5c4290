"""Statistics over the runs of one task: `mean@k`, `std@k`, `best@k`, `worst@k`, `pass@k`, `maj@k`."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Literal

from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

Estimator = Literal["max", "bootstrap"]
"""The meaning of "best of k": the maximum of all k runs, or, as in verl, the mean over draws of k with replacement."""


def best_at_k(runs: Sequence[float], k: int | None = None, *, estimator: Estimator = "max") -> float:
    """Return the best value of k runs.

    `"max"` is the maximum of the runs. `"bootstrap"` is the expected maximum of k draws with replacement, in
    closed form: with the values in ascending order, the i-th of n is the maximum with probability
    (i/n)^k - ((i-1)/n)^k.

    Args:
        runs: One value per run.
        k: The number of runs to draw; by default all.
        estimator: "max" or "bootstrap".

    Raises:
        ValueError: There are no runs.
    """
    return _extreme(sorted(runs), k, estimator)


def worst_at_k(runs: Sequence[float], k: int | None = None, *, estimator: Estimator = "max") -> float:
    """Return the worst value of k runs; see `best_at_k`."""
    return _extreme(sorted(runs, reverse=True), k, estimator)


def drawn(
    runs: Sequence[float], k: int, choose: Callable[[Sequence[float]], float], *, draws: int = 1000, seed: int = 42
) -> float:
    """Return the mean of `choose` over random draws of k runs with replacement.

    For `choose=max`, it approximates `best_at_k(estimator="bootstrap")`, which is exact.
    """
    dice = random.Random(seed)  # does not change the trainer's generator
    return math.fsum(choose(dice.choices(runs, k=k)) for _ in range(draws)) / draws


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return an unbiased estimate of the probability that at least one of k runs is correct, if `correct` of n were.

    The formula is 1 - C(n - c, k) / C(n, k), computed as a product (Chen et al. 2021, section 2.1).

    Raises:
        ValueError: It is not true that 0 ≤ correct ≤ n and 1 ≤ k ≤ n.
    """
    if not (0 <= correct <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {correct} correct among {n}: needs 0 ≤ correct ≤ n and 1 ≤ k ≤ n")
    if n - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / m for m in range(n - correct + 1, n + 1))


def maj_at_k(answers: Sequence[Hashable], scores: Sequence[float]) -> float:
    """Return the score of the most frequent answer; ties go to the answer that was given first.

    Raises:
        ValueError: There are no answers, or the numbers of answers and scores differ.
    """
    if not answers or len(answers) != len(scores):
        raise ValueError(f"{len(answers)} answers and {len(scores)} scores")
    majority = Counter(answers).most_common(1)[0][0]  # `Counter` orders ties by first occurrence
    return scores[list(answers).index(majority)]


def of_task(runs: Sequence[float], *, estimator: Estimator = "max") -> dict[str, float]:
    """Return `mean@k`, `std@k` (of the population), `best@k` and `worst@k` of one task, with k the number of its runs.

    Raises:
        ValueError: There are no runs.
    """
    k = len(runs)
    return {
        f"mean@{k}": float(statistics.reduce("mean", runs)),
        f"std@{k}": statistics.std(runs),
        f"best@{k}": best_at_k(runs, estimator=estimator),
        f"worst@{k}": worst_at_k(runs, estimator=estimator),
    }


def _extreme(towards: Sequence[float], k: int | None, estimator: Estimator) -> float:
    n = len(towards)
    if not n:
        raise ValueError("there are no runs")
    if estimator == "max":
        return towards[-1]
    k = n if k is None else k
    return math.fsum(value * ((i / n) ** k - ((i - 1) / n) ** k) for i, value in enumerate(towards, 1))

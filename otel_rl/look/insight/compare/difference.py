"""The difference between the means of two sides, with an interval that holds for correlated steps.

Values of neighboring steps depend on each other, so that a plain t test finds differences where none are. The variance
of a mean is the equally weighted cosine estimate here, which needs no choice of a lag (`series.long_run_variance`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from otel_rl.look.insight.series import Series, correlation, long_run_variance, t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.series import Floats

Method = Literal["steps", "pairs", "runs"]
"""The values that are compared: the means over steps, the differences at equal steps, or the means of runs."""
CHANCE = 0.05
"""How often the interval is wrong, at the most."""
_LEAST = 20.0
"""Independent steps, or as many correlated ones as say as much, below which nothing is concluded."""
_PAIRED = 0.5
"""Correlation of two runs above which their steps are compared in pairs: both follow one course."""
_COSINES = 0.3
"""With 0.4, intervals of 100 steps with a correlation of 0.5 are wrong in 6 of 100 cases rather than in 5."""
_BATCH = 5
_MOST_LOG = 700.0
"""The largest logarithm of a factor that a float can hold."""
_NEARLY = 1.5
"""How much more than the least score of MSER-5 is as good, so that noise does not shorten what is compared."""


class Difference(NamedTuple):
    """A difference between two sides."""

    base: float  # mean of the base, over its steps and runs; the geometric one if `is_relative`
    new: float  # the same of the new side
    gap: float  # the difference of the means; of logarithms if `is_relative`
    error: float  # standard error of the gap; infinity if nothing can be concluded
    freedom: float  # degrees of freedom of the error
    is_relative: bool  # whether the difference is a fraction of the base
    method: Method  # what was compared
    first: int  # the first step that was compared
    last: int  # the last step that was compared
    steps: int  # number of steps of a run that were compared
    independent: float  # number of independent steps that say as much
    shared: float = 0.0
    """The part of the gap that may be the machine's; the interval has the difference with it and without."""

    @property
    def estimate(self) -> float:
        """The difference: a fraction of the base if `is_relative`, else in the metric's unit."""
        return self._read(self.gap)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval that holds the difference but for a chance of 5 %; infinite ones if unknown."""
        return self._ends(CHANCE)

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest difference, each wrong by a chance of 5 %; a gate is about one of them."""
        return self._ends(2 * CHANCE)

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out zero."""
        low, high = self.interval
        return low > 0 or high < 0

    def steps_for(self, margin: float) -> int | None:
        """Return about how many steps would tell on which side of a margin it is; `None` if no number would."""
        apart = abs(self.gap - (math.log1p(margin) if self.is_relative else margin))
        if self.method == "runs" or not apart:
            return None
        half = 0.0 if math.isinf(self.error) else self._half(2 * CHANCE)
        return math.ceil(self.steps * max(1.0, (half / apart) ** 2, _LEAST / self.independent))

    def _ends(self, chance: float) -> tuple[float, float]:
        half, gaps = self._half(chance), (self.gap, self.gap - self.shared)
        return self._read(min(gaps) - half), self._read(max(gaps) + half)

    def _half(self, chance: float) -> float:
        return t_quantile(chance, self.freedom) * self.error

    def _read(self, value: float) -> float:
        return math.expm1(min(value, _MOST_LOG)) if self.is_relative and value < math.inf else value


def difference(
    base: Sequence[Series], new: Sequence[Series], *, is_relative: bool, warm_up: bool = True
) -> Difference | None:
    """Return the difference of the new side from the base; `None` if no two steps of all runs can be compared.

    Args:
        base: A metric by step, of each run of the base.
        new: The same of the new side.
        is_relative: If true, and all values are positive, logarithms are compared and the result is a fraction.
        warm_up: If true, the first step is left out, and what MSER-5 says (White 1997, "An effective truncation
            heuristic for bias reduction in simulation output", Simulation 69).
    """
    sides = [[run.finite for run in side] for side in (base, new)]
    runs = [run for side in sides for run in side]
    if not base or not new or not all(runs):
        return None
    first, last = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
    runs = [run.between(int(first), int(last)) for run in runs]
    is_relative = is_relative and all(bool((run.values > 0).all()) for run in runs)
    if is_relative:
        runs = [Series(run.steps, np.log(run.values)) for run in runs]
    if warm_up:
        runs = [run.between(int(first) + 1, int(last)) for run in runs]
        first += 1 + _warm_up([run.values for run in runs])
        runs = [run.between(int(first), int(last)) for run in runs]
    if any(len(run.steps) < 2 for run in runs):
        return None
    before, after = runs[: len(base)], runs[len(base) :]
    means = [float(np.mean([run.values.mean() for run in side])) for side in (before, after)]
    if len(runs) > 2:
        method, error, freedom, independent = _of_runs(before, after)
    else:
        method, error, freedom, independent = _of_steps(before[0], after[0])
    gap = means[1] - means[0]
    if is_relative:
        means = [math.exp(mean) for mean in means]
    if method != "runs" and independent < _LEAST:
        error = math.inf
    steps = min(len(run.steps) for run in runs)
    covered = (int(first), int(last), steps, independent)
    return Difference(means[0], means[1], gap, error, freedom, is_relative, method, *covered)


def _of_steps(base: Series, new: Series) -> tuple[Method, float, float, float]:
    """Return the method, the standard error, its degrees of freedom and the number of independent steps, of two runs.

    The choice of the method looks at the correlation alone, which says nothing about the difference of the means.
    """
    _, at_base, at_new = np.intersect1d(base.steps, new.steps, return_indices=True)
    before, after = base.values[at_base], new.values[at_new]
    if len(before) > 2 and _alike(before, after) > _PAIRED:
        gaps = after - before
        variance, freedom = long_run_variance(gaps, _COSINES)
        return "pairs", math.sqrt(variance / len(gaps)), freedom, _independent(gaps)
    parts = [(*long_run_variance(series.values, _COSINES), len(series.values)) for series in (base, new)]
    errors = [variance / count for variance, _, count in parts]
    total = sum(errors)
    degrees = [error**2 / freedom for error, (_, freedom, _) in zip(errors, parts, strict=True)]
    freedom_of_both = total**2 / sum(degrees) if total else sum(freedom for _, freedom, _ in parts)
    return "steps", math.sqrt(total), freedom_of_both, _independent(base.values, new.values)


def _of_runs(base: Sequence[Series], new: Sequence[Series]) -> tuple[Method, float, float, float]:
    """Return the same of the means of runs, whose variance is taken as that of one setup, equal on both sides.

    It is at least what the steps of the runs say, since two or three means may be near to each other by chance.
    """
    sides = [np.array([series.values.mean() for series in side]) for side in (base, new)]
    runs = [series.values for series in (*base, *new)]
    freedom = sum(len(side) - 1 for side in sides)
    variance = sum(float(((side - side.mean()) ** 2).sum()) for side in sides) / freedom
    least = float(np.mean([long_run_variance(run, _COSINES)[0] / len(run) for run in runs]))
    error = math.sqrt(max(variance, least) * sum(1 / len(side) for side in sides))
    return "runs", error, freedom, _independent(*runs)


def _alike(first: Floats, second: Floats) -> float:
    """Return the correlation of two runs at equal steps; 0 if one of them is constant."""
    centered = first - first.mean(), second - second.mean()
    power = math.sqrt(float(centered[0] @ centered[0]) * float(centered[1] @ centered[1]))
    return float(centered[0] @ centered[1]) / power if power else 0.0


def _independent(*runs: Floats) -> float:
    """Return how many independent values of a run say as much about its mean, if runs are autoregressive of order 1."""
    count = min(map(len, runs))
    estimate = float(np.mean([correlation(run) for run in runs]))
    estimate = min(max(0.0, estimate + (1 + 4 * estimate) / count), 1 - 1 / count)  # it is estimated too low by that
    return count * (1 - estimate) / (1 + estimate)


def _warm_up(runs: Sequence[Floats]) -> int:
    """Return how many steps to leave out at the start, at most half: MSER-5's number of batches of five steps."""
    count = min(map(len, runs)) // _BATCH
    if count < 2:
        return 0
    batches = np.mean([run[: count * _BATCH].reshape(count, _BATCH).mean(axis=1) for run in runs], axis=0)
    scores = np.array([float(batches[cut:].var()) / (count - cut) for cut in range(count // 2)])
    return int(np.flatnonzero(scores <= _NEARLY * scores.min())[0]) * _BATCH

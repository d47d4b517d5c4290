"""Series of values by step, and the statistics that findings need."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_MAD_TO_SD = 1.4826
"""The standard deviation of a normal distribution, divided by its median absolute deviation."""


class Series(NamedTuple):
    """The values of a metric, in the order of the steps; NaN and the infinities included."""

    steps: Integers
    values: Floats

    def __bool__(self) -> bool:
        """Return whether there are values."""
        return len(self.steps) > 0

    @property
    def finite(self) -> Series:
        """The values that are finite."""
        kept = np.isfinite(self.values)
        return self if kept.all() else Series(self.steps[kept], self.values[kept])

    def between(self, first: int, last: int) -> Series:
        """Return the values of these steps, both included."""
        begin, end = np.searchsorted(self.steps, [first, last + 1])
        return Series(self.steps[begin:end], self.values[begin:end])

    def first(self, count: int) -> Series:
        """Return the first values."""
        return Series(self.steps[:count], self.values[:count])

    def tail(self, count: int) -> Series:
        """Return the last values."""
        return Series(self.steps[-count:], self.values[-count:])

    @property
    def median(self) -> float:
        """The median of the finite values; NaN without any."""
        values = self.finite.values
        return float(np.median(values)) if len(values) else math.nan

    @property
    def mean(self) -> float:
        """The mean of the finite values; NaN without any."""
        values = self.finite.values
        return float(values.mean()) if len(values) else math.nan


EMPTY = Series(np.array([], np.int64), np.array([], np.float64))
"""A metric that a run does not have."""


def spread(values: Floats) -> float:
    """Return the standard deviation that the median absolute deviation of the values stands for."""
    return _MAD_TO_SD * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def correlation(residuals: Floats) -> float:
    """Return the correlation of values with the values before them; 0 of a constant."""
    centered = residuals - residuals.mean()
    power = float(centered @ centered)
    return float(centered[1:] @ centered[:-1]) / power if power > 0 and len(centered) > 2 else 0.0


def long_run_variance(residuals: Floats, cosines: float = 0.4) -> tuple[float, int]:
    """Return the variance that the mean has times the number of values, and its degrees of freedom.

    Values of neighboring steps are correlated, so the variance of one value says too little. This is the equally
    weighted cosine estimate (Lazarus, Lewis, Stock and Watson 2018, "HAR inference: recommendations for practice",
    Journal of Business & Economic Statistics 36), which recommends 0.4 · n^(2/3) cosines.
    """
    count = len(residuals)
    freedom = max(4, int(cosines * count ** (2 / 3)))
    times = (np.arange(count) + 0.5) / count
    waves = np.cos(np.pi * np.outer(np.arange(1, freedom + 1), times))
    weights = math.sqrt(2 / count) * (waves @ (residuals - residuals.mean()))
    return float(weights @ weights) / freedom, freedom


def t_quantile(chance: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t, by its expansion around the normal one (Cornish and Fisher).

    With one or two degrees of freedom, as of a few runs, the expansion is too small, and the quantile has a formula.
    """
    if freedom < 2:
        return math.tan(math.pi / 2 * (1 - chance))
    if freedom < 3:
        return (1 - chance) * math.sqrt(2 / (1 - (1 - chance) ** 2))
    z = NormalDist().inv_cdf(1 - chance / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def blocks(values: Floats, most: int) -> tuple[Floats, int]:
    """Return the means of at most so many blocks of equal length, and that length; what is left over is left out."""
    length = max(1, math.ceil(len(values) / most))
    whole = len(values) // length * length
    means: Any = values[:whole].reshape(-1, length).mean(axis=1)
    return means, length

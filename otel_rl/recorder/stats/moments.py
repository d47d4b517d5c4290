"""Count, mean and variance that can be merged without the samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Moments(msgspec.Struct):
    """Count, mean, variance and extremes of finite samples; NaN and infinities are counted separately.

    Batches are summed without rounding and merged pairwise (Chan, Golub, LeVeque 1983). For samples whose
    spread is not far below their size, mean and variance agree to 1e-12, relative to the largest sample,
    however they were split up. Below 1e-150, squares lose digits.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    nonfinite: int = 0

    @property
    def total(self) -> float:
        """The sum of the samples."""
        return self.mean * self.count

    def add(self, values: Sequence[float]) -> None:
        """Add samples."""
        finite = [value for value in values if math.isfinite(value)]
        if finite:
            mean = math.fsum(finite) / len(finite)
            m2 = math.fsum((value - mean) ** 2 for value in finite)
            self.merge(Moments(len(finite), mean, m2, min(finite), max(finite)))
        self.nonfinite += len(values) - len(finite)

    def merge(self, other: Moments) -> None:
        """Add the samples of another one."""
        count = self.count + other.count
        if other.count:
            apart = other.mean - self.mean
            self.m2 += other.m2 + apart * apart * self.count * other.count / count
            self.mean += apart * other.count / count
        self.count = count
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        self.nonfinite += other.nonfinite

    def variance(self, ddof: int = 0) -> float:
        """Return the variance: of the population, or with `ddof=1` of a sample; NaN for `ddof` samples or fewer."""
        return self.m2 / (self.count - ddof) if self.count > ddof else math.nan

    def std(self, ddof: int = 0) -> float:
        """Return the standard deviation; see `variance`."""
        return math.sqrt(self.variance(ddof))

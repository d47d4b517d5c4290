"""Approximate quantiles of any number of samples, with bounded memory and error."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

RELATIVE_ERROR = 0.005
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)
_SMALLEST = 1e-12
"""Values closer to 0 than this count as 0."""


class Sketch(msgspec.Struct):
    """Counts of finite samples in buckets of geometrically growing width (DDSketch: Masson, Rim, Lee, 2019).

    A quantile is the value of a sample with a relative error of at most 0.5 %. The result does not depend on how the
    samples were split up, nor on their order. There are at most about 13,000 buckets, for values from 1e-12 to the
    largest float.
    """

    positive: dict[int, int] = {}
    negative: dict[int, int] = {}
    zeros: int = 0

    @property
    def count(self) -> int:
        """The number of samples."""
        return self.zeros + sum(self.positive.values()) + sum(self.negative.values())

    def add(self, values: Iterable[float]) -> None:
        """Add finite samples."""
        for value in values:
            if abs(value) < _SMALLEST:
                self.zeros += 1
            else:
                side = self.positive if value > 0 else self.negative
                bucket = math.ceil(math.log(abs(value)) / _LOG_GAMMA)
                side[bucket] = side.get(bucket, 0) + 1

    def merge(self, other: Sketch) -> None:
        """Add the samples of another sketch."""
        for mine, theirs in ((self.positive, other.positive), (self.negative, other.negative)):
            for bucket, count in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + count
        self.zeros += other.zeros

    def quantile(self, q: float) -> float:
        """Return the sample at rank `floor(q * (count - 1))`, within the relative error; NaN without samples."""
        rank = math.floor(q * (self.count - 1))
        for value, count in self._ascending():
            rank -= count
            if rank < 0:
                return value
        return math.nan

    def geometric_mean(self) -> float:
        """Return exp(mean(log(x))) of non-negative samples, within the relative error."""
        if self.zeros:
            return 0.0
        logs = math.fsum(count * math.log(_middle(bucket)) for bucket, count in self.positive.items())
        return math.exp(logs / self.count)

    def _ascending(self) -> Iterable[tuple[float, int]]:
        for bucket in sorted(self.negative, reverse=True):
            yield -_middle(bucket), self.negative[bucket]
        if self.zeros:
            yield 0.0, self.zeros
        for bucket in sorted(self.positive):
            yield _middle(bucket), self.positive[bucket]


def _middle(bucket: int) -> float:
    """Return the value whose relative distance to both ends of a bucket is the smallest."""
    # From the lower end, which samples are above: the upper one of the largest floats is beyond all floats.
    return float(min(_GAMMA ** (bucket - 1) * (1 + RELATIVE_ERROR), sys.float_info.max))

"""Whether a series grows, and how sure that is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_T95 = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)
"""Student's t for 1 to 20 degrees of freedom: 95 % lie below."""
_T90 = (3.078, 1.886)
"""The same for 90 %, where there are three or four points."""
_NORMAL95 = 1.645


class Trend(NamedTuple):
    """The slope of a least-squares line, and what it is at least.

    Attributes:
        slope: Units of y for each unit of x.
        low: Lower bound of the slope at one-sided 95 % (90 % for three or four points); Student's t.
    """

    slope: float
    low: float


def trend(xs: Sequence[float], ys: Sequence[float]) -> Trend | None:
    """Return the trend of points; `None` for fewer than three, or if all have the same x."""
    n = len(xs)
    if n < 3:
        return None
    x_mean, y_mean = math.fsum(xs) / n, math.fsum(ys) / n
    spread = math.fsum((x - x_mean) ** 2 for x in xs)
    if spread == 0:
        return None
    slope = math.fsum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
    left = math.fsum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in zip(xs, ys, strict=True))
    return Trend(slope, slope - _t(n - 2) * math.sqrt(left / (n - 2) / spread))


def _t(freedom: int) -> float:
    if freedom <= len(_T90):
        return _T90[freedom - 1]
    return _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95 + 1.5 / freedom

"""The range of values that a curve shows.

Few values that are far from all others, or a run that diverged at its end, do not flatten the rest: they are outside of
the range. Values that vary by less than a twentieth of their size are drawn nearly flat, because that is noise.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_EDGE = 0.05
"""Share of the values at each end that may be outside of the range."""
_FAR = 5.0
"""Distance from the other values, in ranges of these, from which a value is outside."""
_LEAST = 0.05
"""The least height of the range, as a share of the largest value."""
_DECADES = 1000.0
"""The ratio of the values from which a logarithmic axis shows more."""
_MOST = 4000
"""Values that are looked at."""


class ValueRange(NamedTuple):
    """The lowest and the highest value that a curve shows, and whether a logarithmic axis helps."""

    low: float
    high: float
    is_log: bool = False


def value_range(values: Iterable[float | None]) -> ValueRange:
    """Return the range that shows the shape of most values; 0 to 1 if none is finite."""
    every = list(values)
    step = max(1, math.ceil(len(every) / _MOST))
    known = sorted(value for value in every[::step] if value is not None and math.isfinite(value))
    if not known:
        return ValueRange(0.0, 1.0)
    left, right = _at(known, _EDGE), _at(known, 1 - _EDGE)
    far = _FAR * (right - left)
    inside = [value for value in known if left - far <= value <= right + far] if far > 0 else known
    low, high = inside[0], inside[-1]
    if known[0] > 0 and right / left >= _DECADES:
        return ValueRange(known[0], known[-1], is_log=True)
    lacking = _LEAST * max(abs(low), abs(high)) - (high - low)
    if lacking > 0:
        low, high = max(low - lacking / 2, -sys.float_info.max), min(high + lacking / 2, sys.float_info.max)
    return ValueRange(low, high)


def place_in(value: float, low: float, high: float) -> float:
    """Return where a value is between two others, from 0 to 1; the middle if these are equal."""
    if not low < high:
        return 0.5
    if math.isinf(high - low):  # ±1.7e308 are finite, and their difference is not
        value, low, high = value / 2, low / 2, high / 2
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _at(known: Sequence[float], share: float) -> float:
    return known[math.floor(share * (len(known) - 1) + 0.5)]

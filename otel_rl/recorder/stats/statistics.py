"""Statistics by name, such as `mean` and `p95`: alone, as a tag of a metric's name, or as its last component."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Number = int | float

NAMES = ("mean", "max", "min", "sum", "last", "std", "count", "geomean")
_INT64 = 1 << 63
_QUANTILE = re.compile(r"p(\d{1,3}(?:\.\d+)?)")


def parse(name: str) -> str | float:
    """Parse the name of a statistic: return the name, or for a quantile its value between 0 and 1.

    Raises:
        ValueError: The statistic is unknown.
    """
    if name in NAMES:
        return name
    match = _QUANTILE.fullmatch(name)
    if match is None or float(match[1]) > 100:
        raise ValueError(f"unknown statistic {name!r}: use {', '.join(NAMES)} or a quantile such as p50 or p99.9")
    return float(match[1]) / 100


def is_statistic(name: str) -> bool:
    """Return whether there is a statistic of this name."""
    try:
        parse(name)
    except ValueError:
        return False
    return True


def quantile_key(q: float) -> str:
    """Return the name of a quantile: 0.05 is `p05`, 0.29 is `p29`, 0.999 is `p99.9`, 1 is `p100`."""
    percent = round(q * 100, 6)
    return f"p{percent:02.0f}" if percent == int(percent) else f"p{percent:g}"


def split_tag(name: str) -> tuple[str, str | None]:
    """Return a name without its tag, and the statistic that the tag asks for: `loss@sum`, `loss:max`.

    A tag must be a known statistic: `accuracy/mean@4` and `x@foo` have none.
    """
    for separator in "@:":
        plain, at_tag, tag = name.rpartition(separator)
        if at_tag and plain and is_statistic(tag):
            return plain, tag
    return name, None


def trailing_component(name: str) -> str | None:
    """Return the last component of a name if it is a statistic: `score/max`, but not `terminated` or `ratio_max`."""
    component = name.rpartition("/")[2]
    return component if component != name and is_statistic(component) else None


def reduce(statistic: str, values: Sequence[Number], weights: Sequence[float] | None = None) -> Number:
    """Return one statistic of the scalars of several ranks.

    Values that are not finite count only if there are no others.

    Args:
        statistic: The name of the statistic.
        values: One scalar per rank.
        weights: The number of samples behind each scalar; used for the mean.

    Raises:
        ValueError: The statistic is unknown, or there are no values.
    """
    kind = parse(statistic)
    if not values:
        raise ValueError("no values to reduce")
    if kind == "count":
        return len(values)
    kept = [n for n, value in enumerate(values) if math.isfinite(value)] or list(range(len(values)))
    given = [values[n] for n in kept]
    if kind == "last":
        return given[-1]
    if kind == "sum":
        return _exact(sum(given)) if all(type(value) is int for value in given) else total(given)
    if kind == "std":
        return std(given)
    if all(value == given[0] for value in given):
        return given[0]
    if kind == "mean" and weights is not None:
        return weighted_mean(given, [weights[n] for n in kept])
    return of_ordered(kind, sorted(given))


def _exact(whole: Number) -> Number:
    """Return an integer as it is if 64 bits hold it, as OTLP and checkpoints need."""
    return whole if -_INT64 <= whole < _INT64 else float(whole)


def of_ordered(kind: str | float, ordered: Sequence[Number]) -> Number:
    """Return a statistic that does not depend on the order, or a quantile, of values in ascending order."""
    match kind:
        case float():
            return quantile(ordered, kind)
        case "max":
            return ordered[-1]
        case "min":
            return ordered[0]
        case "sum":
            return total(ordered)
        case "std":
            return std(ordered)
        case "geomean":
            return geometric_mean(ordered)
    return mean(ordered)


def weighted_mean(values: Sequence[Number], weights: Sequence[float]) -> float:
    """Return the weighted mean; the unweighted one if all weights are 0."""
    total = math.fsum(weights)
    if total <= 0:
        return mean(values)
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / total


def geometric_mean(values: Sequence[Number]) -> float:
    """Return exp(mean(log(x))); NaN if a value is negative, 0 if one is 0."""
    if any(value < 0 or math.isnan(value) for value in values):
        return math.nan
    if 0 in values:
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def std(values: Sequence[Number], ddof: int = 0) -> float:
    """Return the standard deviation: of the population, or with `ddof=1` of a sample."""
    if len(values) <= ddof:
        return math.nan if ddof else 0.0
    low, high = min(values), max(values)
    if low == high:
        return 0.0
    scale = max(abs(low), abs(high))  # so that no square overflows or underflows
    if not math.isfinite(scale):
        return math.nan
    scaled = [value / scale for value in values]
    middle = mean(scaled)
    return scale * math.sqrt(math.fsum([(value - middle) ** 2 for value in scaled]) / (len(scaled) - ddof))


def quantile(ordered: Sequence[Number], q: float) -> float:
    """Return a quantile of values in ascending order, interpolated linearly like NumPy's default."""
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    if low == high or position == below:
        return float(low)
    fraction = position - below
    return low * (1 - fraction) + high * fraction


def total(values: Sequence[Number]) -> float:
    """Return the sum, rounded once."""
    return _over(values, 1)


def mean(values: Sequence[Number]) -> float:
    """Return the arithmetic mean, rounded twice."""
    return _over(values, len(values))


def _over(values: Sequence[Number], count: int) -> float:
    """Return the sum divided by `count`, even if the sum itself overflows."""
    try:
        return math.fsum(values) / count
    except (OverflowError, ValueError):  # the sum overflows, or both infinities occur
        return sum(value / count for value in map(float, values))

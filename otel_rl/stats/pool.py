"""The samples of one metric, pooled over micro-batches and ranks."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

import msgspec

from otel_rl.stats.moments import Moments
from otel_rl.stats.sketch import Sketch
from otel_rl.stats.statistics import geometric_mean, mean, parse, quantile, std, total

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 8192


class Pool(msgspec.Struct):
    """Samples of a metric, of whichever rank and call they were.

    As long as there are few, they are all kept: then every statistic but `last` is the same to the last bit
    however they were split up. Beyond `LIMIT` there are `Moments`, and quantiles from a `Sketch`.

    Attributes:
        kept: The finite samples as native doubles, while they are few.
        moments: What is known of those that are not kept any more.
        sketch: Their quantiles.
        nonfinite: How many were NaN or infinite.
        odd: One of these.
        last: The sample that came last.
    """

    kept: bytes = b""
    moments: Moments = msgspec.field(default_factory=Moments)
    sketch: Sketch = msgspec.field(default_factory=Sketch)
    nonfinite: int = 0
    odd: float = math.nan
    last: float = math.nan

    @property
    def count(self) -> int:
        """How many finite samples there are."""
        return len(self.kept) // 8 + self.moments.count

    def add(self, values: Sequence[float]) -> None:
        """Take samples in."""
        given = values if isinstance(values, array) and values.typecode == "d" else array("d", values)
        finite = given
        if not math.isfinite(sum(given)):  # then one of them is not, or, rarely, only their sum
            finite = array("d", filter(math.isfinite, given))
        if len(finite) < len(given):
            self._note_odd([value for value in given if not math.isfinite(value)])
        if finite:
            self.last = finite[-1]
            self.kept += finite.tobytes()
        self._shrink()

    def merge(self, other: Pool) -> None:
        """Take in what another one has seen, after what this one has."""
        if other.nonfinite:
            self._note_odd([other.odd] * other.nonfinite)
        self.last = self.last if math.isnan(other.last) else other.last
        self.kept += other.kept
        self.moments.merge(other.moments)
        self.sketch.merge(other.sketch)
        self._shrink()

    def statistic(self, name: str) -> int | float:
        """Return one statistic; as `statistics`."""
        return self.statistics((name,))[0]

    def statistics(self, names: Sequence[str]) -> list[int | float]:
        """Return statistics by their names; NaN where there is no finite sample, or the one infinity that there is.

        Raises:
            ValueError: There is no such statistic.
        """
        kinds = [parse(name) for name in names]
        ordered = sorted(memoryview(self.kept).cast("d"))
        return [self.count if kind == "count" else self._statistic(kind, ordered) for kind in kinds]

    def _statistic(self, kind: str | float, ordered: Sequence[float]) -> float:
        if not self.count:
            return 0.0 if kind == "sum" and not self.nonfinite else self.odd
        if kind == "last":
            return self.last
        if not ordered:
            return self._of_many(kind)
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

    def _of_many(self, kind: str | float) -> float:
        if isinstance(kind, float):
            return min(max(self.sketch.quantile(kind), self.moments.minimum), self.moments.maximum)
        match kind:
            case "max":
                return self.moments.maximum
            case "min":
                return self.moments.minimum
            case "sum":
                return self.moments.total
            case "std":
                return self.moments.std()
            case "geomean":
                return math.nan if self.moments.minimum < 0 else self.sketch.geometric_mean()
        return self.moments.mean

    def _shrink(self) -> None:
        if self.moments.count or len(self.kept) > LIMIT * 8:
            values = memoryview(self.kept).cast("d")
            self.moments.add(values)
            self.sketch.add(values)
            self.kept = b""

    def _note_odd(self, values: Sequence[float]) -> None:
        """Remember the one infinity, or NaN if they are not all the same."""
        same = all(value == values[0] for value in values) and (not self.nonfinite or self.odd == values[0])
        self.odd = values[0] if same else math.nan
        self.nonfinite += len(values)

"""The samples of one metric, pooled over micro-batches and ranks."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.stats.moments import Moments
from otel_rl.recorder.stats.sketch import Sketch
from otel_rl.recorder.stats.statistics import of_ordered, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 8192


class Pool(msgspec.Struct):
    """The samples of a metric, from any ranks and calls.

    Up to `LIMIT` samples are kept. Then every statistic but `last` is bitwise the same however the samples were split
    up. Beyond `LIMIT`, statistics come from `Moments`, and quantiles from a `Sketch`.
    """

    kept: bytes = b""  # the finite samples as native doubles
    moments: Moments = msgspec.field(default_factory=Moments)  # of the samples that are no longer kept
    sketch: Sketch = msgspec.field(default_factory=Sketch)  # of the samples that are no longer kept
    nonfinite: int = 0  # number of NaN and infinite samples
    odd: float = math.nan  # the infinity, if all of these are the same one
    last: float = math.nan  # the newest sample

    @property
    def count(self) -> int:
        """The number of finite samples."""
        return len(self.kept) // 8 + self.moments.count

    def add(self, values: Sequence[float]) -> None:
        """Add samples."""
        given = values if isinstance(values, array) and values.typecode == "d" else array("d", values)
        finite = given
        if not math.isfinite(sum(given)):  # then a sample is not finite, or, rarely, their sum overflows
            finite = array("d", filter(math.isfinite, given))
        if len(finite) < len(given):
            self._note_odd([value for value in given if not math.isfinite(value)])
        if finite:
            self.last = finite[-1]
            self.kept += finite.tobytes()
        self._shrink()

    def merge(self, other: Pool) -> None:
        """Add the samples of another pool, as newer ones."""
        if other.nonfinite:
            self._note_odd([other.odd] * other.nonfinite)
        self.last = self.last if math.isnan(other.last) else other.last
        self.kept += other.kept
        self.moments.merge(other.moments)
        self.sketch.merge(other.sketch)
        self._shrink()

    def statistic(self, name: str) -> int | float:
        """Return one statistic; see `statistics`."""
        return self.statistics((name,))[0]

    def statistics(self, names: Sequence[str]) -> list[int | float]:
        """Return statistics by name; without finite samples, they are NaN, or the only infinity.

        Raises:
            ValueError: A statistic is unknown.
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
        return of_ordered(kind, ordered)

    def _of_many(self, kind: str | float) -> float:
        moments = self.moments
        if isinstance(kind, float):
            return min(max(self.sketch.quantile(kind), moments.minimum), moments.maximum)
        if kind == "geomean":
            return math.nan if moments.minimum < 0 else self.sketch.geometric_mean()
        known = {
            "max": moments.maximum,
            "min": moments.minimum,
            "sum": moments.total,
            "std": moments.std(),
            "mean": moments.mean,
        }
        return known[kind]

    def _shrink(self) -> None:
        if self.moments.count or len(self.kept) > LIMIT * 8:
            values = memoryview(self.kept).cast("d")
            self.moments.add(values)
            self.sketch.add(values)
            self.kept = b""

    def _note_odd(self, values: Sequence[float]) -> None:
        """Keep the infinity if all non-finite samples are the same one, else NaN."""
        same = all(value == values[0] for value in values) and (not self.nonfinite or self.odd == values[0])
        self.odd = values[0] if same else math.nan
        self.nonfinite += len(values)

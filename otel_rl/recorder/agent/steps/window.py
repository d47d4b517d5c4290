"""Reduces values over several steps, from the observations of all of them, for `rows.every`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from otel_rl.export import Row
from otel_rl.recorder.stats.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Number = int | float
NONFINITE = "nonfinite"
"""Stands for the number of observations that are in no statistic, among the statistics of a pool."""
_OF_A_STEP = ("sum", "count")
_KEPT = ("mean", "max", "min", "last")


class Scalars(NamedTuple):
    """The values that ranks logged under one name in one step, one of each rank, and how they are reduced.

    The weight of a value is the number of observations behind it; without weights each is one observation.
    """

    statistic: str
    values: Sequence[Number]
    weights: Sequence[float] | None


class ObservedValues(NamedTuple):
    """The observations that a row was reduced from.

    `scalars` and `pooled` (the pool and its statistic) are by the name in the row, `pools` by the logged name.
    """

    scalars: dict[str, Scalars]
    pooled: dict[str, tuple[str, str]]
    pools: Mapping[str, Pool]


class Seen(msgspec.Struct):
    """Scalars of one metric since the last row."""

    statistic: str
    total: float = 0.0  # sum of the finite values, each times its weight
    weight: float = 0.0  # sum of these weights
    plain: float = 0.0  # sum of the finite values
    count: int = 0  # how many these are
    largest: Number = -math.inf
    smallest: Number = math.inf
    last: Number = math.nan  # the last value, finite or not
    exact: Number | None = None  # the value if it was always the same; so it keeps its type
    pool: Pool | None = None  # the finite values, for statistics that need them all

    def add(self, value: Number, weight: float) -> None:
        """Take in what one rank logged in one step."""
        self.exact = value if math.isnan(self.last) and not self.count else self.exact
        self.exact = self.exact if self.exact == value else None
        self.last = value
        if not math.isfinite(value):
            return
        self.total += value * weight
        self.weight += weight
        self.plain += value
        self.count += 1
        self.largest = max(self.largest, value)
        self.smallest = min(self.smallest, value)
        if self.statistic not in _KEPT:
            self.pool = self.pool or Pool()
            self.pool.add([value])

    def value(self) -> Number:
        """Return the statistic; what is not finite counts only where no other value is there."""
        if self.exact is not None and self.statistic != "std":
            return self.exact
        if self.statistic == "last" or not self.count:
            return self.last
        if self.statistic in ("max", "min"):
            return self.largest if self.statistic == "max" else self.smallest
        if self.pool is not None and self.statistic != "mean":
            return self.pool.statistic(self.statistic)
        return self.total / self.weight if self.weight > 0 else self.plain / self.count


class Window(msgspec.Struct):
    """The observations since the last row that left."""

    row: Row | None = None  # the last row, and what the others lacked; without values if these are reduced over steps
    seen: dict[str, Seen] = {}  # scalars, by the name in rows
    pools: dict[str, Pool] = {}  # samples, by the name that they were logged under
    targets: dict[str, tuple[str, str]] = {}  # which pool, and which of its statistics, by the name in rows

    def add(self, row: Row, observed: ObservedValues | None, statistic_of: Callable[[str], str]) -> None:
        """Take in a row.

        Last is that of the highest step. Max, min, std and quantiles are those of all observations of all steps, and
        means are weighted by what the observations stand for. Sums and counts of observations add up. Sums and counts
        of scalars belong to a step, such as the parts of a loss that ranks contribute, so they are averaged over the
        steps. `statistic_of` returns how a value that nobody logged is reduced.
        """
        known = observed or ObservedValues({}, {}, {})
        is_behind = self.row is not None and row.step < self.row.step
        for name, value in row.values.items():
            if name in known.pooled:
                self.targets[name] = known.pooled[name]
            else:
                statistic, values, weights = known.scalars.get(name) or Scalars(statistic_of(name), (value,), None)
                if statistic in _OF_A_STEP:
                    statistic, values, weights = "mean", (value,), None
                if not (is_behind and statistic == "last" and name in self.seen):
                    self._add_scalars(name, statistic, values, weights)
        for logged in {known.pooled[name][0]: None for name in row.values if name in known.pooled}:
            self.pools.setdefault(logged, Pool()).merge(known.pools[logged])
        first = replace(row, values={}, late=False, begins=row.step, digests="")
        self.row = first if self.row is None else _together(self.row, row)

    def keep(self, row: Row) -> None:
        """Take in a row in place of the ones before it."""
        if self.row is None or row.step > self.row.step:
            self.row = row
        elif row.step == self.row.step:
            self.row = replace(_together(self.row, row), values={**self.row.values, **row.values})

    def pop(self) -> Row | None:
        """Return the row over all steps since the last call, and forget them; `None` if there are no values."""
        of_pools: dict[str, dict[str, Number]] = {}
        for logged, pool in self.pools.items():
            wanted = [statistic for of, statistic in self.targets.values() if of == logged and statistic != NONFINITE]
            values = zip(wanted, pool.statistics(wanted), strict=True)
            of_pools[logged] = {**dict(values), NONFINITE: pool.nonfinite}
        columns = {name: seen.value() for name, seen in self.seen.items()}
        columns |= {name: of_pools[logged][statistic] for name, (logged, statistic) in self.targets.items()}
        row = None if self.row is None else replace(self.row, values=columns or self.row.values)
        if row is not None and row.begins == row.step:
            row = replace(row, begins=None)
        self.row, self.seen, self.pools, self.targets = None, {}, {}, {}
        return row if row is not None and row.values else None

    def _add_scalars(
        self, name: str, statistic: str, values: Sequence[Number], weights: Sequence[float] | None
    ) -> None:
        seen = self.seen.setdefault(name, Seen(statistic))
        for n, value in enumerate(values):
            seen.add(value, 1.0 if weights is None else weights[n])


def _together(before: Row, row: Row) -> Row:
    """Return what is known of a window of rows: the place of the last step, and what any of them lacks."""
    last = row if row.step >= before.step else before
    nonfinite = dict(before.nonfinite)
    for name, count in row.nonfinite.items():
        nonfinite[name] = nonfinite.get(name, 0) + count
    return replace(
        last,
        values={},
        late=False,
        missing_ranks=tuple(sorted({*before.missing_ranks, *row.missing_ranks})),
        measured=tuple(dict.fromkeys((*before.measured, *row.measured))),
        nonfinite=nonfinite,
        partial=before.partial or row.partial,
        part=min(before.part, row.part),
        digests="",
        begins=min(before.begins, row.step) if before.begins is not None else None,
    )

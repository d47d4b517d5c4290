"""Reduces the values that were logged for a step to the values of a row."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from otel_rl.export import Table
from otel_rl.recorder.agent.steps.window import NONFINITE, ObservedValues, Scalars
from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.recorder.agent.steps.contribution import Number, Whole
    from otel_rl.recorder.agent.steps.naming import Reductions
    from otel_rl.recorder.agent.steps.row_names import RowNames
    from otel_rl.recorder.journal.records import Tabled

_KEEPING = frozenset({("mean",), ("max",), ("min",), ("sum",), ("last",), ("geomean",)})
"""Statistics that do not change a single value, which is the common case."""


def reduced(
    step: Whole, reductions: Reductions, names: RowNames
) -> tuple[dict[str, Number], dict[str, int], ObservedValues]:
    """Return the values of a step, reduced over ranks and observations, counts of non-finite ones, and the input."""
    values: dict[str, Number] = {}
    observed = ObservedValues({}, {}, step.pools)
    for logged, by in step.values.items():
        reduction = reductions.of(logged)
        given = list(by.values())
        weights = step.weights.get(logged, {})
        of_each = [weights.get(journal, 1.0) for journal in by] if weights else None
        base = names.base(logged, "value")
        for name, statistic in reduction.targets(base):
            is_kept = len(by) == 1 and reduction.statistics in _KEEPING
            values[name] = given[0] if is_kept else statistics.reduce(statistic, given, of_each)
            if reduction.over_steps:
                observed.scalars[name] = Scalars(reduction.over_steps, (values[name],), None)
            else:
                observed.scalars[name] = Scalars(statistic, given, of_each)
    nonfinite: dict[str, int] = {}
    for logged, pool in step.pools.items():
        reduction = reductions.of(logged, observations=True)
        base = names.base(logged, "observations")
        targets = reduction.targets(base)
        values.update(zip((name for name, _ in targets), pool.statistics([s for _, s in targets]), strict=True))
        observed.pooled.update({name: (logged, statistic) for name, statistic in targets})
        if pool.nonfinite:
            nonfinite[base] = values[f"{base}/{NONFINITE}"] = pool.nonfinite
            observed.pooled[f"{base}/{NONFINITE}"] = (logged, NONFINITE)
    return values, nonfinite, observed


def plain(step: Whole) -> dict[str, Number]:
    """Return the values of a step where they cannot be reduced: one of each name, of the last rank to log it."""
    return {name: next(reversed(by.values())) for name, by in step.values.items() if by}


def tables(attempt: int, number: int, recorded: Iterable[tuple[int, Tabled]]) -> list[Table]:
    """Return the tables of a step, given with their ranks; those with the same name and columns are merged.

    Their parts are not numbered.
    """
    parts: dict[tuple[str, tuple[str, ...]], list[tuple[int, Tabled]]] = {}
    for rank, table in recorded:
        parts.setdefault((table.name, tuple(table.columns)), []).append((rank, table))
    return [
        Table(
            name=name,
            step=number,
            time_unix_nano=max(table.time for _, table in of_ranks),
            columns=columns,
            rows=tuple(cells for _, table in sorted(of_ranks, key=itemgetter(0)) for cells in table.rows),
            attempt=attempt,
            ranks=tuple(sorted({rank for rank, _ in of_ranks})),
            cut_rows=sum(table.cut_rows for _, table in of_ranks),
        )
        for (name, columns), of_ranks in parts.items()
    ]

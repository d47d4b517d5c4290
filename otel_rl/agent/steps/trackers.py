"""Chooses the rows and metrics for trackers: every n-th step, reduced over the steps in between.

Instruments get every row unchanged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Ended, Row, identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.agent.steps.filters import Filter
    from otel_rl.agent.steps.naming import Reductions
    from otel_rl.agent.steps.state import State
    from otel_rl.agent.steps.window import Observed
    from otel_rl.export import Identity, Item
    from otel_rl.setup.settings import Rows

logger = logging.getLogger(__name__)


class TrackerRows:
    """Turns rows of the reducer into rows for exporters.

    The row of a window of steps leaves with the last step of the window, or earlier if a step of another window or
    attempt comes, or the attempt ends. A late row joins its window if the window's row has not left.

    Args:
        rows: Steps that have a row, and the maximum number of metric names; the first names are kept.
        chosen: The metrics in the rows.
        reductions: How a metric is combined over the steps between two rows.

    Attributes:
        dropped: Number of values that were dropped because of `name_limit`.
    """

    def __init__(self, rows: Rows, chosen: Filter, reductions: Reductions) -> None:
        self._settings = rows
        self._filter = chosen
        self._reductions = reductions
        self._limit = rows.limit
        self._names: set[str] = set()
        self.dropped = 0
        self._has_told = False

    def of(
        self, items: Iterable[Item], state: State, observed: Mapping[Identity, Observed] | None = None
    ) -> list[Item]:
        """Return the items that leave; values that are reduced later are kept in the state.

        Args:
            items: The items of the reducer.
            state: The state of the reducer, which keeps the window.
            observed: The observations that each row was reduced from.
        """
        leaving: list[Item] = []
        for item in items:
            if isinstance(item, Row):
                leaving += self._rows(item, state, (observed or {}).get(identity(item)))
            else:
                leaving += _left(state) if isinstance(item, Ended) else []
                leaving.append(item)
        return leaving

    def _rows(self, row: Row, state: State, observed: Observed | None) -> list[Row]:
        given = len(row.values)
        row = msgspec.structs.replace(row, values=self._filter.select(self._limited(row.values)))
        if given and not row.values and not self._has_told and not self.dropped:
            self._has_told = True
            chosen = self._settings.metrics
            logger.warning("rows.metrics=%r chose none of %d metrics of step %d", chosen, given, row.step)
        rows, window = self._settings, state.window
        if not row.values or rows.every == 0:
            return []
        last = window.row
        is_of_window = last is not None and self._window_of(last) == self._window_of(row)
        if rows.has_all_steps or (row.late and not (is_of_window and last and row.step <= last.step)):
            return [row] if rows.window == "mean" or rows.is_due(row.step) else []
        leaving = [] if is_of_window else _left(state)
        if rows.window == "mean":
            window.add(row, observed, self._statistic)
        else:
            window.keep(row)
        return leaving + (_left(state) if rows.is_due(row.step) else [])

    def _window_of(self, row: Row) -> tuple[int, int]:
        return row.attempt, self._settings.window_of(row.step)

    def _statistic(self, name: str) -> str:
        return self._reductions.of(name).statistics[0]

    def _limited(self, values: dict[str, int | float]) -> dict[str, int | float]:
        fresh = values.keys() - self._names
        if len(self._names) + len(fresh) <= self._limit:
            self._names |= fresh
            return values
        for name in values:  # in their order, so that the first ones are kept
            if len(self._names) < self._limit:
                self._names.add(name)
        kept = {name: value for name, value in values.items() if name in self._names}
        if not self.dropped:
            logger.warning("more than %d metric names: values of new names are dropped", self._limit)
        self.dropped += len(values) - len(kept)
        return kept


def _left(state: State) -> list[Row]:
    row = state.window.take()
    return [] if row is None else [row]

"""What trackers get of the rows: every so many steps, averaged over the steps between, of chosen metrics.

Instruments get every row as it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from otel_rl.cadence import add, take
from otel_rl.export import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.agent.naming import Reductions
    from otel_rl.agent.state import State
    from otel_rl.cadence import Cadence
    from otel_rl.export import Item
    from otel_rl.filters import Filter

logger = logging.getLogger(__name__)


class TrackerRows:
    """Turns the items that the reducer makes into those that destinations get.

    Args:
        cadence: When rows leave.
        chosen: Which metrics are in them.
        reductions: How a metric is combined over the steps between two rows.
        name_limit: How many different names there may be; the first ones are kept.

    Attributes:
        dropped: How many values were left out because there were too many names.
    """

    def __init__(self, cadence: Cadence, chosen: Filter, reductions: Reductions, name_limit: int) -> None:
        self._cadence = cadence
        self._filter = chosen
        self._reductions = reductions
        self._limit = name_limit
        self._names: set[str] = set()
        self.dropped = 0

    def of(self, items: Iterable[Item], state: State) -> list[Item]:
        """Return what leaves; what is averaged until later is kept in the state."""
        return [left for item in items if (left := self._row(item, state) if isinstance(item, Row) else item)]

    def _row(self, row: Row, state: State) -> Row | None:
        values = self._filter.select(self._limited(row.values))
        if not row.late and not self._cadence.leaves_all:
            add(state.window, values)
            if not self._cadence.is_due(row.step):
                return None
            over_window = take(state.window, self._statistic)
            values = over_window if self._cadence.window == "mean" else values
        return msgspec.structs.replace(row, values=values) if values else None

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
            logger.warning("there are more than %d metric names; the first of them are kept", self._limit)
        self.dropped += len(values) - len(kept)
        return kept

"""Chooses the rows and metrics for trackers: every n-th step, reduced over the steps in between.

Instruments get every row unchanged.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.export import Ended, Row, identity
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.given import function_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.export import Identity, Item
    from otel_rl.recorder.agent.steps.contribution import Number
    from otel_rl.recorder.agent.steps.naming import Reductions
    from otel_rl.recorder.agent.steps.state import State
    from otel_rl.recorder.agent.steps.window import ObservedValues
    from otel_rl.recorder.settings.settings import Rows

logger = log_of(__name__)
_MOST_REMEMBERED = 20_000


class Filter:
    """Chooses metrics by their names.

    Args:
        chosen: `"full"` or `"usual"`; `module:qualname` of a function from values to values; or name patterns, of which
            the last one that matches decides. A pattern after a `!` excludes; if the first pattern excludes, all other
            metrics are chosen.
    """

    def __init__(self, chosen: str | Sequence[str] = "full") -> None:
        self._function = function_at(chosen) if isinstance(chosen, str) else None
        is_full = self._function is not None or chosen in ("", "full", "usual")
        patterns = () if is_full else (chosen,) if isinstance(chosen, str) else tuple(chosen)
        self._rules = [(not p.startswith("!"), re.compile(fnmatch.translate(p.removeprefix("!")))) for p in patterns]
        self._default = not self._rules or not self._rules[0][0]
        self._is_chosen = lru_cache(_MOST_REMEMBERED)(self._decide)

    def select(self, values: Mapping[str, Number]) -> dict[str, Number]:
        """Return the chosen values."""
        if self._function is not None:
            return dict(self._function(values))
        if not self._rules:
            return dict(values)
        return {name: value for name, value in values.items() if self._is_chosen(name)}

    def _decide(self, name: str) -> bool:
        said = [includes for includes, pattern in self._rules if pattern.fullmatch(name)]
        return said[-1] if said else self._default


class TrackerRows:
    """Turns rows of the reducer into rows for exporters.

    The row of a window of steps leaves with the last step of the window, or earlier if a step of another window or
    attempt comes, or the attempt ends. A late row joins its window if the window's row has not left. Of more metric
    names than `rows.limit`, the first ones are kept; `dropped` counts the values of the others.
    """

    def __init__(self, rows: Rows, reductions: Reductions) -> None:
        self._settings, self._reductions = rows, reductions
        self._filter = Filter(rows.metrics)
        self._names: set[str] = set()
        self.dropped = 0
        self._has_warned = False

    def of(
        self, items: Iterable[Item], state: State, observed: Mapping[Identity, ObservedValues] | None = None
    ) -> list[Item]:
        """Return the items that leave; values that are reduced later are kept in the window of the state.

        `observed` has the observations that each row was reduced from.
        """
        leaving: list[Item] = []
        for item in items:
            if isinstance(item, Row):
                leaving += self._rows(item, state, (observed or {}).get(identity(item)))
            else:
                leaving += left(state) if isinstance(item, Ended) else []
                leaving.append(item)
        return leaving

    def _rows(self, row: Row, state: State, observed: ObservedValues | None) -> list[Row]:
        given = len(row.values)
        row = replace(row, values=self._filter.select(self._limited(row.values)))
        if given and not row.values and not self._has_warned and not self.dropped:
            self._has_warned = True
            chosen = self._settings.metrics
            logger.warning("rows.metrics=%r chose none of %d metrics of step %d", chosen, given, row.step)
        rows, window = self._settings, state.window
        if not row.values or rows.every == 0:
            return []
        last = window.row
        is_of_window = last is not None and self._window_of(last) == self._window_of(row)
        if rows.has_all_steps or (row.late and not (is_of_window and last and row.step <= last.step)):
            return [row] if rows.window == "mean" or rows.is_due(row.step) else []
        leaving = [] if is_of_window else left(state)
        if rows.window == "mean":
            window.add(row, observed, self._statistic)
        else:
            window.keep(row)
        return leaving + (left(state) if rows.is_due(row.step) else [])

    def _window_of(self, row: Row) -> tuple[int, int]:
        return row.attempt, self._settings.window_of(row.step)

    def _statistic(self, name: str) -> str:
        reduction = self._reductions.of(name)
        return reduction.over_steps or reduction.statistics[0]

    def _limited(self, values: dict[str, Number]) -> dict[str, Number]:
        fresh = values.keys() - self._names
        if len(self._names) + len(fresh) <= self._settings.limit:
            self._names |= fresh
            return values
        for name in values:  # in their order, so that the first ones are kept
            if len(self._names) < self._settings.limit:
                self._names.add(name)
        kept = {name: value for name, value in values.items() if name in self._names}
        if not self.dropped:
            logger.warning("more than %d metric names: values of new names are dropped", self._settings.limit)
        self.dropped += len(values) - len(kept)
        return kept


def left(state: State) -> list[Row]:
    """Return the row of the window, which leaves; none if it has no values."""
    row = state.window.pop()
    return [] if row is None else [row]

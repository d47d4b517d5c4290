"""The values by which runs are listed, sorted and chosen: how far they are, their parameters, and their metrics."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from otel_rl.export import Params
from otel_rl.look.insight.selection import RunTexts, SelectionError, column_of, selection_of
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.archive.tables import PARAMETERS
from otel_rl.recorder.archive.writer import read
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.semconv.main_metrics import MainMetrics, Topic, best_of, entries

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from otel_rl.look.insight.facts import Cost, Facts
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.selection import RunColumn, Value
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.semconv.main_metrics import Best

_NS = 1e9
_TOPICS: Mapping[str, Topic] = {entry.topic: entry.topic for entry in entries()}


class RunValues:
    """The values of a run, each read when it is first asked for.

    Args:
        run: The run as it is now.
        at: The time, in Unix nanoseconds.
        price: The price of an hour of a GPU, in place of the run's own.
        facts: Its facts, if they are known already.
    """

    def __init__(self, run: RunPresent, at: int, price: float | None = None, facts: Facts | None = None) -> None:
        self.run = run
        self.known_facts = facts
        self._price = price
        self._at = at
        self._path = Path(run.path)

    @property
    def texts(self) -> RunTexts:
        """The words by which the run is chosen."""
        run = self.run
        hosts = {process.host for process in run.processes}
        texts = (run.name, run.project, run.id, run.path, run.marks.notes, *run.marks.tags)
        return RunTexts(run.state, run.project, run.marks.labels, tuple(sorted(hosts)), texts)

    def value(self, column: RunColumn) -> Value:
        """Return a value: of the run, else of a parameter with this name, else of a metric; `None` without one.

        A parameter is also meant by the end of its name behind a point, if it is the only one with this end.

        Raises:
            SelectionError: It is unknown which value of the metric is the best.
        """
        try:
            if not column.aggregate:
                if column.name in OF_RUN:
                    return OF_RUN[column.name](self.run, self._at)
                if column.name in OF_COST:
                    return OF_COST[column.name](self._cost)
                if name := self._parameter(column.name):
                    return self.parameters[name]
            return self._metric(column)
        except OSError:  # somebody may delete a run that is listed
            return None

    def best(self, column: RunColumn) -> Best:
        """Return which value of a column that the run has is the best; empty if it is unknown."""
        is_own = not column.aggregate and column.name in (*OF_RUN, *OF_COST)
        if not column.aggregate and not is_own and self._parameter(column.name):
            return ""
        if column.name in _TOPICS:
            return best_of(_TOPICS[column.name])
        if is_own:
            return "lowest" if column.name == "seen" else ""
        last = self._last_values
        main = main_of(tuple(last)) if column.name in last else self._recorded.main
        return main.best(column.name)

    def _parameter(self, name: str) -> str:
        """Return the whole name of the parameter that is meant; empty without one."""
        same = [key for key in self.parameters if key.endswith(f".{name}")]
        return name if name in self.parameters else same[0] if len(same) == 1 else ""

    @cached_property
    def parameters(self) -> Mapping[str, Value]:
        """The latest value of each hyperparameter; without the files that are damaged."""
        archive = self._path / ARCHIVE
        places = [archive / machine for machine in machines(archive)]
        listed = [(place, file) for place in places for file in files.of_table(place, PARAMETERS.name)]
        every = (item for place, file in listed for item in read(place, (PARAMETERS,), file))
        items = [item for item in every if isinstance(item, Params)]
        known: dict[str, Value] = {}
        for item in sorted(items, key=lambda item: item.time_unix_nano):
            known.update(item.values)
        return known

    @property
    def _last_values(self) -> Mapping[str, float | None]:
        """The last values of the main metrics; `None` is one that is not finite."""
        return {curve.name: curve.points[-1][1] for curve in self.run.progress.curves if curve.points}

    def _metric(self, column: RunColumn) -> Value:
        last = self._last_values
        if column.aggregate in ("", "last") and (name := _name_in(main_of(tuple(last)), column, last)):
            return last[name]
        recorded = self._recorded
        return _aggregated(recorded, _name_in(recorded.main, column, recorded.names), column)

    @cached_property
    def facts(self) -> Facts:
        """All facts of the run.

        Raises:
            OSError: It cannot be read.
        """
        from otel_rl.look.insight.conclude import facts_of_recorded

        facts = self.known_facts or facts_of_recorded(self._recorded)
        return facts if self._price is None else replace(facts, cost=facts.cost.repriced(self._price))

    @cached_property
    def _cost(self) -> Cost:
        from otel_rl.look.insight.conclude import cost_of_run

        if self.known_facts is not None or "facts" in self.__dict__:
            return self.facts.cost
        cost = cost_of_run(self._recorded)
        return cost if self._price is None else cost.repriced(self._price)

    @cached_property
    def _recorded(self) -> RecordedRun:
        from otel_rl.look.insight.recorded import RecordedRun  # loads NumPy and DuckDB
        from otel_rl.look.reader.runs import open_run

        return RecordedRun(open_run(self._path), self._at)


OF_RUN: Mapping[str, Callable[[RunPresent, int], Value]] = {
    "name": lambda run, _: run.name,
    "project": lambda run, _: run.project,
    "state": lambda run, _: run.state,
    "steps": lambda run, _: run.progress.steps,
    "last_step": lambda run, _: run.progress.last_step,
    "step_time": lambda run, _: run.progress.recent_step_seconds,
    "seen": lambda run, at: (at - run.last_unix_nano) / _NS if run.last_unix_nano else None,
}
"""Values of the run itself; `seen` is the time since its last sign of life, and `step_time` of a step, in seconds."""

OF_COST: Mapping[str, Callable[[Cost], Value]] = {
    "gpu_hours": lambda cost: cost.gpu_hours,
    "cost": lambda cost: cost.money,
    "wasted": lambda cost: cost.wasted_share,
    "tokens": lambda cost: cost.tokens,
}
"""Values of the cost of a run."""


def in_order(runs: Sequence[RunValues], column: RunColumn, *, reverse: bool = False) -> list[RunValues]:
    """Return runs by a value, the best, latest, or largest number first, texts by the alphabet; those without it last.

    Raises:
        SelectionError: It is unknown which value of the metric is the best.
    """
    values = [(run, run.value(column)) for run in runs]
    numbers = [(run, float(value)) for run, value in values if isinstance(value, int | float)]
    numbers = [(run, value) for run, value in numbers if not math.isnan(value)]
    texts = [(run, value) for run, value in values if isinstance(value, str)]
    best = next(filter(None, (run.best(column) for run, _ in numbers)), "")
    is_ascending = best == "lowest" or (not best and column.aggregate == "min")
    numbers.sort(key=lambda known: known[1], reverse=is_ascending == reverse)
    texts.sort(key=lambda known: known[1].casefold(), reverse=reverse)
    sorted_runs = [run for run, _ in (*numbers, *texts)]
    known = {id(run) for run in sorted_runs}
    return [*sorted_runs, *(run for run in runs if id(run) not in known)]


class ChosenValues(NamedTuple):
    """The runs that somebody asks for."""

    runs: list[RunValues]  # the runs, in order
    columns: tuple[RunColumn, ...]  # the further columns
    order: RunColumn | None  # the column by which they are sorted; `None` if they are as they were


def chosen(
    runs: Iterable[RunValues],
    where: str = "",
    sort: str = "",
    columns: Iterable[str] = (),
    *,
    with_archived: bool = False,
) -> ChosenValues:
    """Return the runs that a list shows, for all screens.

    Args:
        runs: The runs.
        where: The conditions that they meet.
        sort: The column by which they are sorted, behind a minus in the other order; as they are without one.
        columns: Further columns.
        with_archived: If true, archived runs are shown too.

    Raises:
        SelectionError: One of the texts cannot be read.
    """
    selection, wanted = selection_of(where), tuple(map(column_of, columns))
    order = column_of(sort.removeprefix("-")) if sort else None
    shown = (run for run in runs if with_archived or not run.run.marks.archived)
    some = [run for run in shown if selection.admits(run.texts, run.value)]
    ordered = some if order is None else in_order(some, order, reverse=sort.startswith("-"))
    return ChosenValues(ordered, wanted, order)


@lru_cache(1024)
def main_of(names: tuple[str, ...]) -> MainMetrics:
    """Return the main metrics among names."""
    return MainMetrics(names)


def _name_in(main: MainMetrics, column: RunColumn, names: Container[str]) -> str:
    """Return which of the names of a run is meant, itself or by its topic; empty without one."""
    if column.name in names:
        return column.name
    return main.name(_TOPICS[column.name]) if column.name in _TOPICS else ""


def _aggregated(recorded: RecordedRun, name: str, column: RunColumn) -> Value:
    """Return a value of a metric; `None` if it is not finite."""
    series = recorded.series(name)
    values = series.finite.values
    if not len(values):
        return None
    match column.aggregate:
        case "min":
            value = values.min()
        case "max":
            value = values.max()
        case "mean":
            value = recorded.recent_mean(name, column.steps, least=1)
        case "best":
            best = recorded.main.best(name)
            if not best:
                asked = column.name
                raise SelectionError(f"which value of {asked} is the best is unknown: give {asked}:max or {asked}:min")
            value = values.max() if best == "highest" else values.min()
        case _:
            value = series.values[-1]
    return float(value) if math.isfinite(value) else None

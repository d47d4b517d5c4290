"""The values by which runs are listed, sorted and chosen: how far they are, their parameters, and their metrics."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.export import Params
from otel_rl.look.insight.selection import RunTexts
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.archive.tables import PARAMETERS
from otel_rl.recorder.archive.writer import read
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.semconv.main_metrics import MainMetrics, Topic, entries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.look.insight.facts import Cost
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.selection import RunColumn, Value
    from otel_rl.look.insight.series import Series
    from otel_rl.recorder.archive.present import RunPresent

_NS = 1e9
_TOPICS: Mapping[str, Topic] = {entry.topic: entry.topic for entry in entries()}
_HIGHEST: tuple[Topic, ...] = ("reward", "reward_components", "evaluation", "tokens_per_second", "goodput")
_LOWEST: tuple[Topic, ...] = ("loss", "kl", "step_time", "truncated", "no_signal", "memory_peak", "staleness")
"""The metrics whose best value is the highest and the lowest one."""


class RunValues:
    """The values of a run, each read when it is first asked for.

    Args:
        run: The run as it is now.
        at: The time, in Unix nanoseconds.
        price: The price of an hour of a GPU, in place of the run's own.
    """

    def __init__(self, run: RunPresent, at: int, price: float | None = None) -> None:
        self.run = run
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
            ValueError: It is unknown which value of the metric is the best.
        """
        if not column.aggregate:
            if column.name in OF_RUN:
                return OF_RUN[column.name](self.run, self._at)
            if column.name in OF_COST:
                return OF_COST[column.name](self._cost)
            if column.name in self.parameters:
                return self.parameters[column.name]
            same = [key for key in self.parameters if key.endswith(f".{column.name}")]
            if len(same) == 1:
                return self.parameters[same[0]]
        return self._metric(column)

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

    def _metric(self, column: RunColumn) -> Value:
        points = {curve.name: curve.points for curve in self.run.progress.curves if curve.points}
        name = column.name if column.name in points else _name_of(column.name, tuple(points))
        if name in points and column.aggregate in ("", "last") and (last := points[name][-1][1]) is not None:
            return last
        recorded = self._recorded
        name = column.name
        if name not in recorded.names and name in _TOPICS:
            name = recorded.main.name(_TOPICS[name])
        return _aggregated(recorded.series(name).finite, column, _topics_of(recorded.main, name))

    @cached_property
    def _cost(self) -> Cost:
        from otel_rl.look.insight.conclude import cost_of_run

        return cost_of_run(self._recorded, self._price)

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
        ValueError: It is unknown which value of the metric is the best.
    """
    values = [(run, run.value(column)) for run in runs]
    numbers = [(run, float(value)) for run, value in values if isinstance(value, int | float)]
    numbers = [(run, value) for run, value in numbers if not math.isnan(value)]
    texts = [(run, value) for run, value in values if isinstance(value, str)]
    is_ascending = column.name in ("seen", *_LOWEST) or column.aggregate == "min"
    numbers.sort(key=lambda known: known[1], reverse=is_ascending == reverse)
    texts.sort(key=lambda known: known[1].casefold(), reverse=reverse)
    sorted_runs = [run for run, _ in (*numbers, *texts)]
    known = {id(run) for run in sorted_runs}
    return [*sorted_runs, *(run for run in runs if id(run) not in known)]


@lru_cache(1024)
def _name_of(topic: str, names: tuple[str, ...]) -> str:
    """Return which of the names of a run is that of a topic; empty without one."""
    return MainMetrics(names).name(_TOPICS[topic]) if topic in _TOPICS else ""


def _topics_of(main: MainMetrics, name: str) -> list[Topic]:
    return [topic for topic, names in main.by_topic.items() if name in names]


def _aggregated(series: Series, column: RunColumn, topics: Sequence[Topic]) -> Value:
    """Return a value of a series of finite values."""
    if not series:
        return None
    values = series.values
    match column.aggregate:
        case "min":
            return float(values.min())
        case "max":
            return float(values.max())
        case "mean":
            return float(values[-column.steps :].mean())
        case "best" if any(topic in _HIGHEST for topic in topics):
            return float(values.max())
        case "best" if any(topic in _LOWEST for topic in topics):
            return float(values.min())
        case "best":
            name = column.name
            raise ValueError(f"which value of {name} is the best is unknown: give {name}:max or {name}:min")
        case _:
            return float(values[-1])

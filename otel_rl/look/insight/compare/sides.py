"""The sides of a comparison: a metric of each of their runs, on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.series import Series
from otel_rl.semconv.main_metrics import STEP_TIME, entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.series import Floats
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.semconv.main_metrics import Topic

THROUGHPUT = "throughput"
_ALIASES: dict[str, Topic] = {
    THROUGHPUT: "tokens_per_second",
    "memory": "memory_peak",
    "length": "completion_length",
}
TOPICS: dict[str, Topic] = {**{entry.topic: entry.topic for entry in entries()}, **_ALIASES}
"""The topics of the metrics that a comparison names."""
STEPS_PER_SECOND = "steps per second"
"""The throughput of runs without a rate of tokens."""


class Sides:
    """Two sides of runs.

    Args:
        base: The runs of the base.
        new: The runs of the new side.
        steps: The first and the last step that count; all by default.
        by_tokens: If true, runs are aligned by tokens.

    Attributes:
        base: The runs of the base.
        new: The runs of the new side.
    """

    def __init__(
        self,
        base: Sequence[RunReader],
        new: Sequence[RunReader],
        steps: tuple[int, int] | None = None,
        *,
        by_tokens: bool = False,
    ) -> None:
        self.base = [RecordedRun(run) for run in base]
        self.new = [RecordedRun(run) for run in new]
        self.runs = [*self.base, *self.new]
        self._steps = steps
        self._tokens = [_tokens(run) for run in self.runs] if by_tokens else None

    def metric(self, metric: str) -> tuple[str, list[Series], list[Series]]:
        """Return the name of a metric on the new side, and its values by step of each run of both sides."""
        named = [self._series(run, metric) for run in self.runs]
        series = self._aligned([self.within(series_of_run) for _, series_of_run in named])
        return named[-1][0], series[: len(self.base)], series[len(self.base) :]

    def within(self, series: Series) -> Series:
        """Return the values of the steps that count."""
        return series if self._steps is None else series.between(*self._steps)

    def range(self) -> tuple[int, int]:
        """Return the first and the last step that count and that all runs have.

        Raises:
            ValueError: There are none.
        """
        for run in self.runs:
            if run.steps is None:
                raise ValueError(f"{run.place.path} has no steps to compare")
        first, last = self._steps or (0, 1 << 62)
        first = max(first, *(run.steps.first for run in self.runs if run.steps))
        last = min(last, *(run.steps.last for run in self.runs if run.steps))
        if first > last:
            raise ValueError("the runs have no step in common" + (" among these" if self._steps else ""))
        return first, last

    def _series(self, run: RecordedRun, metric: str) -> tuple[str, Series]:
        if metric == THROUGHPUT:
            if all(run.main.name("tokens_per_second") for run in self.runs):
                return run.of_topic("tokens_per_second")
            steps, times = run.step_times
            return STEPS_PER_SECOND, Series(
                steps, np.divide(1.0, times, out=np.full(len(times), np.nan), where=times > 0)
            )
        if metric == "step_time":
            return STEP_TIME, run.step_times
        if metric in TOPICS and metric not in run.names:
            return run.of_topic(TOPICS[metric])
        return metric, run.series(metric)

    def _aligned(self, series: list[Series]) -> list[Series]:
        """Return series whose steps are those of the first run, by the tokens that were generated up to them."""
        if self._tokens is None:
            return series
        grid = self._tokens[0]
        aligned = [series[0]]
        for of_run, tokens in zip(series[1:], self._tokens[1:], strict=True):
            finite = of_run.finite
            at = np.interp(finite.steps, tokens.steps, tokens.values)
            inside = (grid.values >= at[0]) & (grid.values <= at[-1]) if len(at) else np.zeros(len(grid.steps), bool)
            values: Floats = np.interp(grid.values[inside], at, finite.values) if len(at) else np.array([])
            aligned.append(Series(grid.steps[inside], values))
        return aligned


def _tokens(run: RecordedRun) -> Series:
    """Return the tokens that were generated up to each step: of trajectories, else the rate times the time of a step.

    Raises:
        ValueError: The run has neither.
    """
    sums = run.run.sql("SELECT step, sum(tokens)::DOUBLE AS tokens FROM trajectories GROUP BY step ORDER BY step")
    if len(sums) and sums["tokens"].sum() > 0:
        return Series(np.asarray(sums["step"], np.int64), np.cumsum(np.asarray(sums["tokens"], np.float64)))
    name, rates = run.of_topic("tokens_per_second")
    times = run.step_times
    steps, at_rates, at_times = np.intersect1d(rates.steps, times.steps, return_indices=True)
    if not name or not len(steps):
        raise ValueError(f"{run.place.path} cannot be aligned by tokens: it has neither trajectories nor a token rate")
    return Series(steps, np.cumsum(np.nan_to_num(rates.values[at_rates] * times.values[at_times])))

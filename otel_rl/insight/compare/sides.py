"""The sides of a comparison: a metric of each of their runs, on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.insight.recorded import Recorded
from otel_rl.insight.series import Series
from otel_rl.semconv.main_metrics import STEP_TIME, entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.series import Floats
    from otel_rl.semconv.main_metrics import Topic

THROUGHPUT = "throughput"
_ALIASES: dict[str, Topic] = {"memory": "memory_peak", "length": "completion_length"}
_TOPICS: dict[str, Topic] = {**{one.topic: one.topic for one in entries()}, **_ALIASES}
STEPS_PER_SECOND = "steps per second"
"""The throughput of runs without a rate of tokens."""


class Sides:
    """Two sides of runs.

    Attributes:
        base: The runs of the base.
        new: The runs of the new side.
    """

    def __init__(self, base: Sequence[RunReader], new: Sequence[RunReader], *, by_tokens: bool = False) -> None:
        self.base = [Recorded(one) for one in base]
        self.new = [Recorded(one) for one in new]
        self.runs = [*self.base, *self.new]
        self._tokens = [_tokens(one) for one in self.runs] if by_tokens else None

    def metric(self, metric: str) -> tuple[str, list[Series], list[Series]]:
        """Return the name of a metric on the new side, and its values by step of each run of both sides."""
        found = [self._series(one, metric) for one in self.runs]
        series = self._aligned([one for _, one in found])
        return found[-1][0], series[: len(self.base)], series[len(self.base) :]

    def _series(self, run: Recorded, metric: str) -> tuple[str, Series]:
        if metric == THROUGHPUT:
            if all(one.main.name("tokens_per_second") for one in self.runs):
                return run.of("tokens_per_second")
            steps, times = run.step_times
            return STEPS_PER_SECOND, Series(
                steps, np.divide(1.0, times, out=np.full(len(times), np.nan), where=times > 0)
            )
        if metric == "step_time":
            return STEP_TIME, run.step_times
        if metric in _TOPICS and metric not in run.names:
            return run.of(_TOPICS[metric])
        return metric, run.series(metric)

    def _aligned(self, series: list[Series]) -> list[Series]:
        """Return series whose steps are those of the first run, by the tokens that were generated up to them."""
        if self._tokens is None:
            return series
        grid = self._tokens[0]
        found = [series[0]]
        for one, tokens in zip(series[1:], self._tokens[1:], strict=True):
            finite = one.finite
            at = np.interp(finite.steps, tokens.steps, tokens.values)
            inside = (grid.values >= at[0]) & (grid.values <= at[-1]) if len(at) else np.zeros(len(grid.steps), bool)
            values: Floats = np.interp(grid.values[inside], at, finite.values) if len(at) else np.array([])
            found.append(Series(grid.steps[inside], values))
        return found


def _tokens(run: Recorded) -> Series:
    """Return the tokens that were generated up to each step: of trajectories, else the rate times the time of a step.

    Raises:
        ValueError: The run has neither.
    """
    found = run.run.sql("SELECT step, sum(tokens)::DOUBLE AS tokens FROM trajectories GROUP BY step ORDER BY step")
    if len(found) and found["tokens"].sum() > 0:
        return Series(np.asarray(found["step"], np.int64), np.cumsum(np.asarray(found["tokens"], np.float64)))
    name, rates = run.of("tokens_per_second")
    times = run.step_times
    steps, at_rates, at_times = np.intersect1d(rates.steps, times.steps, return_indices=True)
    if not name or not len(steps):
        raise ValueError(f"{run.place.path} cannot be aligned by tokens: it has neither trajectories nor a token rate")
    return Series(steps, np.cumsum(np.nan_to_num(rates.values[at_rates] * times.values[at_times])))

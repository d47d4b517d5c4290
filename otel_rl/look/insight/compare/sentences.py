"""A comparison in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.look.insight.compare.shared import all_phases
from otel_rl.look.insight.compare.sides import THROUGHPUT
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.compare.comparison import FirstDifference, MetricDifference, PhaseDifference
    from otel_rl.look.insight.compare.difference import Difference

_LEAST = 0.01
"""The smallest difference of a metric that a sentence is about, as a fraction of the base."""
_OF_PHASES = 0.02
"""The smallest part of the time of a step that a phase has to differ by, to be named as a cause."""

_MOST_RANKS = 4
_MORE = "give several runs on each side"


def sentences(
    metrics: Sequence[MetricDifference],
    phases: Sequence[PhaseDifference],
    first_difference: FirstDifference | None,
    luck: Sequence[str],
    shared: float,
    *,
    are_equal: bool,
) -> list[str]:
    """Return the sentences, the most important first.

    Args:
        metrics: The main metrics.
        phases: The phases, the one with the largest difference first.
        first_difference: Where runs that begin equally first differ.
        luck: The metrics whose differences may be those of seeds.
        shared: The logarithm of the factor by which all phases of single runs take longer; 0 if they do not.
        are_equal: Whether logged values begin equally.
    """
    texts: list[str] = []
    of_seeds = 0
    of_metric = {metric.metric: metric for metric in metrics}
    speed, times = of_metric.get(THROUGHPUT), of_metric.get("step_time")
    if speed is not None and speed.way != "same":
        word = "higher" if speed.way == "better" else "lower"
        texts.append(f"Throughput is {_percents(speed)} {word}{_cause(times, phases)}.")
    elif times is not None and times.way != "same":
        word = "less" if times.way == "better" else "longer"
        texts.append(f"Steps take {_percents(times)} {word}{_cause(times, phases)}.")
    elif abs(shared) > _LEAST:
        texts.append(f"The machine may differ, since {all_phases(shared)}: {_MORE}.")
    for metric in metrics:
        if metric.way == "same" or metric.metric in (THROUGHPUT, "step_time") or _is_small(metric):
            continue
        sign = "higher" if metric.difference > 0 else "lower"
        size = _percents(metric) if metric.is_relative else wording.number(abs(metric.difference))
        ends = "" if metric.is_relative else f" ({wording.number(metric.base)} → {wording.number(metric.new)})"
        texts.append(f"{metric.name} is {size} {sign}{ends}.")
        of_seeds += metric.metric in luck
    if of_seeds:
        texts.append(f"Between single runs, what the policy does can differ by the seed alone: {_MORE}.")
    if are_equal and first_difference is None:
        texts.append("All values that the trainers logged are equal.")
    elif first_difference is not None:
        texts.append(_of_first(first_difference))
    if not metrics:
        texts.append("The runs share too few steps to compare metrics.")
    elif all(metric.way == "same" or _is_small(metric) for metric in metrics):
        texts.append(f"No main metric differs with certainty by {wording.percent(_LEAST)} or more.")
        if unknown := [metric.name for metric in metrics if metric.low is None]:
            texts.append(f"Too few independent steps to tell: {wording.names(unknown)}.")
    return texts


def _of_first(first: FirstDifference) -> str:
    ranks = wording.names([f"rank {rank}" for rank in first.ranks], _MOST_RANKS)
    begins = f"Logged values are equal before step {wording.integer(first.step)}"
    if not first.metric:
        return f"{begins}, where those of {ranks} differ, by less than the reduced values show."
    where = f" on {ranks}" if ranks else ""
    return f"{begins}, where {first.metric} differs{where}: {first.base!r}, {first.new!r}."


def _is_small(metric: MetricDifference) -> bool:
    """Return whether a difference is certain, and too small to matter."""
    return abs(metric.difference) < _LEAST * (1 if metric.is_relative else abs(metric.base))


def _cause(step_time: MetricDifference | None, phases: Sequence[PhaseDifference]) -> str:
    """Return the phases that make up the difference of the time of a step."""
    if step_time is None:
        return ""
    gap = step_time.new - step_time.base
    named = [
        phase
        for phase in phases
        if (phase.new - phase.base) * gap > 0 and abs(phase.new - phase.base) > _OF_PHASES * step_time.base
    ]
    changes = [f"{phase.phase} {wording.seconds(phase.base)} → {wording.seconds(phase.new)}" for phase in named]
    return f": {wording.names(changes)}" if changes else ""


def _percents(metric: MetricDifference) -> str:
    low, high = sorted(abs(end) for end in (metric.low or 0.0, metric.high or 0.0))
    return f"{wording.tenths(abs(metric.difference))} % ({wording.tenths(low)} to {wording.tenths(high)} %)"


def size(difference: Difference) -> str:
    """Return a difference with its interval."""
    low, high = difference.interval
    if difference.is_relative:
        middle, low_end, high_end = (wording.tenths(end, signed=True) for end in (difference.estimate, low, high))
        return f"{middle} %{f', {low_end} to {high_end} %' if math.isfinite(high) else ''}"
    ends = f", {wording.signed(low)} to {wording.signed(high)}" if math.isfinite(high) else ""
    return f"{wording.signed(difference.estimate)}{ends}"

"""A comparison in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.compare.shared import all_phases
from otel_rl.insight.compare.sides import THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.compare.comparison import FirstDifference, MetricDifference, PhaseDifference
    from otel_rl.insight.compare.difference import Difference

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
    found: list[str] = []
    of_seeds = 0
    of_metric = {one.metric: one for one in metrics}
    speed, times = of_metric.get(THROUGHPUT), of_metric.get("step_time")
    if speed is not None and speed.way != "same":
        word = "higher" if speed.way == "better" else "lower"
        found.append(f"Throughput is {_percents(speed)} {word}{_cause(times, phases)}.")
    elif times is not None and times.way != "same":
        word = "less" if times.way == "better" else "longer"
        found.append(f"Steps take {_percents(times)} {word}{_cause(times, phases)}.")
    elif abs(shared) > _LEAST:
        found.append(f"The machine may differ, since {all_phases(shared)}: {_MORE}.")
    for one in metrics:
        if one.way == "same" or one.metric in (THROUGHPUT, "step_time") or _is_small(one):
            continue
        sign = "higher" if one.difference > 0 else "lower"
        size = _percents(one) if one.is_relative else wording.number(abs(one.difference))
        ends = "" if one.is_relative else f" ({wording.number(one.base)} → {wording.number(one.new)})"
        found.append(f"{one.name} is {size} {sign}{ends}.")
        of_seeds += one.metric in luck
    if of_seeds:
        found.append(f"Between single runs, what the policy does can differ by the seed alone: {_MORE}.")
    if are_equal and first_difference is None:
        found.append("All values that the trainers logged are equal.")
    elif first_difference is not None:
        found.append(_of_first(first_difference))
    if not metrics:
        found.append("The runs share too few steps to compare metrics.")
    elif all(one.way == "same" or _is_small(one) for one in metrics):
        found.append(f"No main metric differs with certainty by {100 * _LEAST:.0f} % or more.")
        if unknown := [one.name for one in metrics if one.low is None]:
            found.append(f"Too few independent steps to tell: {wording.names(unknown)}.")
    return found


def _of_first(found: FirstDifference) -> str:
    ranks = wording.names([f"rank {rank}" for rank in found.ranks], _MOST_RANKS)
    begins = f"Logged values are equal before step {wording.integer(found.step)}"
    if not found.metric:
        return f"{begins}, where those of {ranks} differ, by less than the reduced values show."
    where = f" on {ranks}" if ranks else ""
    return f"{begins}, where {found.metric} differs{where}: {found.base!r}, {found.new!r}."


def _is_small(one: MetricDifference) -> bool:
    """Return whether a difference is certain, and too small to matter."""
    return abs(one.difference) < _LEAST * (1 if one.is_relative else abs(one.base))


def _cause(step_time: MetricDifference | None, phases: Sequence[PhaseDifference]) -> str:
    """Return the phases that make up the difference of the time of a step."""
    if step_time is None:
        return ""
    gap = step_time.new - step_time.base
    named = [
        one
        for one in phases
        if (one.new - one.base) * gap > 0 and abs(one.new - one.base) > _OF_PHASES * step_time.base
    ]
    told = [f"{one.phase} {wording.seconds(one.base)} → {wording.seconds(one.new)}" for one in named]
    return f": {wording.names(told)}" if told else ""


def _percents(one: MetricDifference) -> str:
    low, high = sorted(abs(end) for end in (one.low or 0.0, one.high or 0.0))
    return f"{100 * abs(one.difference):.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"


def size(found: Difference) -> str:
    """Return a difference with its interval."""
    low, high = found.interval
    if found.is_relative:
        ends = f", {100 * low:+.1f} to {100 * high:+.1f} %" if math.isfinite(high) else ""
        return f"{100 * found.estimate:+.1f} %{ends}"
    ends = f", {wording.signed(low)} to {wording.signed(high)}" if math.isfinite(high) else ""
    return f"{wording.signed(found.estimate)}{ends}"

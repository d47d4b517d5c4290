"""The numbers of a comparison as texts, as every screen shows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.look.insight.compare.comparison import Comparison, MetricDifference, Side

_MOST_PHASES = 8
_LEAST_OF_PHASES = 1e-3
_METHODS = {
    "steps": "means over steps",
    "pairs": "differences at equal steps, where both runs follow one course",
    "runs": "means of runs",
}
_SOURCE = "Intervals allow for steps that depend on each other (equally weighted cosines)."


def names_of(side: Sequence[Side]) -> str:
    """Return the runs of a side, with how those ended that did not finish."""
    names = []
    for run in side:
        state = "" if run.state == "finished" else f", {run.state}"
        names.append(f"{run.path} ({run.name}, {wording.count(run.steps, 'step')}{state})")
    return " + ".join(names)


def label_of(metric: MetricDifference) -> str:
    """Return the name of a metric, with its topic."""
    return metric.name if metric.name == metric.metric else f"{metric.metric} · {metric.name}"


def values_of(metric: MetricDifference) -> tuple[str, str]:
    """Return the means of both sides, in the unit of the metric."""
    show = {"step_time": wording.seconds, "memory_peak": wording.memory}.get(metric.metric, wording.number)
    return show(metric.base), show(metric.new)


def difference_of(metric: MetricDifference) -> str:
    """Return the difference with its interval."""
    if metric.low is None or metric.high is None:
        return f"unknown: {wording.count(int(metric.independent), 'independent step')}"
    show = partial(wording.tenths, signed=True) if metric.is_relative else wording.signed
    middle, low, high = (show(value) for value in (metric.difference, metric.low, metric.high))
    return f"{middle}{' %' if metric.is_relative else ''} ({low} to {high})"


def phases_of(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield the phases that differ the most: name, both times, and the difference."""
    for phase in comparison.phases[:_MOST_PHASES]:
        gap = phase.new - phase.base
        near = abs(gap) < _LEAST_OF_PHASES * max(phase.base, phase.new)
        shown = "" if near else wording.signed_seconds(gap)
        yield phase.phase, wording.seconds(phase.base), wording.seconds(phase.new), shown


def method_of(comparison: Comparison) -> list[str]:
    """Return how the runs were compared."""
    methods = dict.fromkeys(_METHODS[metric.method] for metric in comparison.metrics)
    return [f"Compared: {'; '.join(methods)}.", _SOURCE] if methods else []

"""The numbers of a comparison as texts, as every screen shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.insight.compare.comparison import Comparison, MetricDifference, Side

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
    told = []
    for one in side:
        state = "" if one.state == "finished" else f", {one.state}"
        told.append(f"{one.path} ({one.name}, {wording.count(one.steps, 'step')}{state})")
    return " + ".join(told)


def label_of(one: MetricDifference) -> str:
    """Return the name of a metric, with its topic."""
    return one.name if one.name == one.metric else f"{one.metric} · {one.name}"


def values_of(one: MetricDifference) -> tuple[str, str]:
    """Return the means of both sides, in the unit of the metric."""
    show = {"step_time": wording.seconds, "memory_peak": wording.memory}.get(one.metric, wording.number)
    return show(one.base), show(one.new)


def difference_of(one: MetricDifference) -> str:
    """Return the difference with its interval."""
    if one.low is None or one.high is None:
        return f"unknown: {wording.count(int(one.independent), 'independent step')}"
    scale, unit = (100, " %") if one.is_relative else (1, "")
    show = (lambda value: f"{value:+.1f}") if one.is_relative else wording.signed
    middle, low, high = (show(value * scale) for value in (one.difference, one.low, one.high))
    return f"{middle}{unit} ({low} to {high})"


def phases_of(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield the phases that differ the most: name, both times, and the difference."""
    for one in comparison.phases[:_MOST_PHASES]:
        gap = one.new - one.base
        near = abs(gap) < _LEAST_OF_PHASES * max(one.base, one.new)
        shown = "" if near else wording.signed_seconds(gap)
        yield one.phase, wording.seconds(one.base), wording.seconds(one.new), shown


def method_of(comparison: Comparison) -> list[str]:
    """Return how the runs were compared."""
    methods = dict.fromkeys(_METHODS[one.method] for one in comparison.metrics)
    return [f"Compared: {'; '.join(methods)}.", _SOURCE] if methods else []

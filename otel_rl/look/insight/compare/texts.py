"""The numbers of a comparison as texts, as every screen shows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.look.insight.compare.comparison import Comparison, MetricDifference, PhaseDifference, Side

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


def metrics_of(comparison: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the rows of the table of metrics; with several new runs, a column for each."""
    if not comparison.columns:
        head = ("metric", "base", "new", "difference (95 %)")
        return head, [(label_of(metric), *values_of(metric), difference_of(metric)) for metric in comparison.metrics]
    of_runs = [{metric.metric: metric for metric in metrics} for metrics in _each(comparison)[0]]
    rows = []
    for name in dict.fromkeys(name for of_run in of_runs for name in of_run):
        known = next(of_run[name] for of_run in of_runs if name in of_run)
        cells = (_column(of_run[name]) if name in of_run else "" for of_run in of_runs)
        rows.append((label_of(known), values_of(known)[0], *cells))
    return ("metric", "base", *_heads(comparison)), rows


def phases_of(comparison: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the rows of the table of the phases that differ the most; a column for each new run."""
    if not comparison.columns:
        return ("phase", "base", "new", "difference"), [*_phases(comparison)]
    of_runs = [{phase.phase: phase for phase in phases} for phases in _each(comparison)[1]]
    rows = []
    for name in list(dict.fromkeys(name for of_run in of_runs for name in of_run))[:_MOST_PHASES]:
        known = next(of_run[name] for of_run in of_runs if name in of_run)
        cells = (wording.seconds(of_run[name].new) if name in of_run else "" for of_run in of_runs)
        rows.append((name, wording.seconds(known.base), *cells))
    return ("phase", "base", *_heads(comparison)), rows


def _each(
    comparison: Comparison,
) -> tuple[list[tuple[MetricDifference, ...]], list[tuple[PhaseDifference, ...]]]:
    columns = comparison.columns
    metrics = [comparison.metrics, *(column.metrics for column in columns)]
    return metrics, [comparison.phases, *(column.phases for column in columns)]


def new_runs(comparison: Comparison) -> list[Side]:
    """Return all runs that are compared with the base."""
    return [*comparison.new, *(column.run for column in comparison.columns)]


def _heads(comparison: Comparison) -> list[str]:
    runs = new_runs(comparison)
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [run.id for run in runs]


def _column(metric: MetricDifference) -> str:
    """Return the mean of a new run, and how it differs if that is certain."""
    value = values_of(metric)[1]
    if metric.way == "same":
        return value
    change = (
        f"{wording.tenths(metric.difference, signed=True)} %"
        if metric.is_relative
        else wording.signed(metric.difference)
    )
    return f"{value} ({change})"


def _phases(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
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

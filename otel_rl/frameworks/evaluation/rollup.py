"""Aggregation of experiences to runs, runs to tasks, and tasks to a step, with Trinity-RFT's names.

A name is `{category}/{taskset}/{metric}/{statistic}`. Only evaluations and benchmarks have a task set, and a metric may
itself contain slashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.frameworks.evaluation import at_k
from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.frameworks.evaluation.at_k import Estimator

TRAIN = ("mean", "max", "min")
DETAILED = ("mean", "std", "max", "min")
_WITH_TASKSET = ("eval", "bench")
_OF_RUNS = ("mean", "std", "best", "worst", "pass", "maj")
_PLAIN = ("time/task_execution", "time/run_execution")
"""Durations, which are only averaged over runs."""


class Name(msgspec.Struct, frozen=True):
    """The parts of a metric's name."""

    category: str
    """`rollout`, `eval`, `bench`, …"""
    metric: str
    """The metric."""
    taskset: str = ""
    """The task set; empty if the category has none."""
    statistic: str = ""
    """The statistic, such as `mean`, `best@4` or `mean@4/std`; empty if the name has none."""

    def __str__(self) -> str:
        """Return the name."""
        return "/".join(part for part in (self.category, self.taskset, self.metric, self.statistic) if part)


def parse(name: str) -> Name:
    """Return the parts of a name.

    Raises:
        ValueError: The name has too few parts.
    """
    category, *parts = name.split("/")
    has_taskset = category in _WITH_TASKSET and bool(parts)
    taskset = parts.pop(0) if has_taskset else ""
    statistic: list[str] = []
    while len(parts) > 1 and _is_statistic(parts[-1]) and len(statistic) < 2:
        statistic.insert(0, parts.pop())
    if not parts or "" in (category, *parts) or (has_taskset and not taskset):
        raise ValueError(
            f"invalid name {name!r}: must be {{category}}/{{metric}} or {{category}}/{{taskset}}/{{metric}}"
        )
    return Name(category, "/".join(parts), taskset, "/".join(statistic))


def of_run(experiences: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics of a run: the means over its experiences that have them."""
    return {name: float(statistics.reduce("mean", values)) for name, values in _by_name(experiences).items()}


def of_task(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics of a task while training: the means over its runs."""
    return of_run(runs)


def of_step(tasks: Sequence[Mapping[str, float]], prefix: str, over_tasks: Sequence[str] = TRAIN) -> dict[str, float]:
    """Return the metrics of a step while training: `{prefix}/{metric}/{statistic}` over the means of tasks.

    The names do not depend on the number of tasks.

    Args:
        tasks: The metrics of each task, from `of_task`.
        prefix: The category, such as `rollout`.
        over_tasks: The statistics; the standard deviation is that of the population.
    """
    return {
        f"{prefix}/{metric}/{statistic}": float(statistics.reduce(statistic, values))
        for metric, values in _by_name(tasks).items()
        for statistic in over_tasks
    }


def of_evaluation(
    tasks: Sequence[Sequence[Mapping[str, float]]],
    prefix: str,
    *,
    detailed: bool = False,
    over_tasks: Sequence[str] = DETAILED,
    estimator: Estimator = "max",
) -> dict[str, float]:
    """Return the metrics of an evaluation.

    `{prefix}/{metric}/{statistic}@{k}` is the mean over tasks of the statistic over the k runs of a task. So `std@2` is
    the mean of standard deviations, not the standard deviation of all runs. With `detailed`, each metric becomes
    `…/mean`, `/std` (of the population of tasks), `/max` and `/min` over tasks.

    Args:
        tasks: For each task its runs, for each run its metrics.
        prefix: Category and task set, such as `eval/gsm8k`.
        detailed: Trinity-RFT's `monitor.detailed_stats`.
        over_tasks: The statistics over tasks.
        estimator: The meaning of best and worst of k runs.
    """
    of_tasks = [
        {
            key: value
            for metric, by_metric in _by_name(runs).items()
            for key, value in _of_runs(metric, by_metric, estimator).items()
        }
        for runs in tasks
    ]
    by_metric = _by_name(of_tasks)
    if not detailed:
        return {f"{prefix}/{name}": float(statistics.reduce("mean", values)) for name, values in by_metric.items()}
    return of_step(of_tasks, prefix, over_tasks)


def _of_runs(metric: str, values: Sequence[float], estimator: Estimator) -> dict[str, float]:
    if metric in _PLAIN:
        return {metric: float(statistics.reduce("mean", values))}
    return {f"{metric}/{name}": value for name, value in at_k.of_task(values, estimator=estimator).items()}


def _by_name(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            by_name.setdefault(name, []).append(value)
    return by_name


def _is_statistic(part: str) -> bool:
    kind, at, k = part.partition("@")
    return kind in _OF_RUNS and k.isdigit() if at else statistics.is_statistic(part)

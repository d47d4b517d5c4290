"""Runs that share a value, such as a project or a learning rate: their cost together, and which of them is the best."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.look.insight.facts import Cost
from otel_rl.look.insight.run_values import main_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.step_time import RECENT_STEPS
from otel_rl.semconv.main_metrics import Topic, best_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_rl.look.insight.facts import Facts
    from otel_rl.look.insight.run_values import RunValues
    from otel_rl.look.insight.selection import RunColumn

    FactsOf = Callable[[RunValues], Facts | None]
    """Returns the facts of a run; `None` if they are not known yet."""

_GOALS: tuple[Topic, ...] = ("reward", "evaluation")
"""Topics by which runs are ranked, the first that two runs have: a loss of a policy says nothing of how good it is."""
_CLEAR = 2.0
"""Standard errors by which the best run has to differ from another one."""
_MOST_NAMED = 3


class RunGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that share a value."""

    label: str  # the value; empty if they have none, or if all runs are one group
    runs: tuple[str, ...]  # their directories, in the order of the list
    cost: Cost  # of all of them together, as far as it is known
    spent: str  # the cost in words; empty if nothing is known
    best: tuple[str, ...] = ()  # the directory of the best run of each project, where that can be said
    sentences: tuple[str, ...] = ()  # which one is the best, by what, and which seem better and are not


class _Level(NamedTuple):
    """How high a metric of a run is at its end."""

    run: RunValues
    name: str  # the metric
    mean: float
    error: float  # its standard error

    @property
    def words(self) -> str:
        return f"{self.run.run.name} ({self.name} {wording.number(self.mean)})"

    def is_clear_of(self, other: _Level) -> bool:
        return abs(self.mean - other.mean) > _CLEAR * math.hypot(self.error, other.error)


def groups_of(runs: Sequence[RunValues], by: RunColumn | None, facts_of: FactsOf) -> tuple[RunGroup, ...]:
    """Return runs in groups, in the order in which their first runs are listed.

    Args:
        runs: The runs.
        by: The value that the runs of a group share; `None` for one group of all runs.
        facts_of: Returns the facts of a run.

    Raises:
        SelectionError: The value is not one that runs have.
    """
    members: dict[str, list[RunValues]] = {}
    for run in runs:
        value = None if by is None else run.value(by)
        label = "" if value is None else wording.number(value) if isinstance(value, float) else str(value)
        members.setdefault(label, []).append(run)
    return tuple(_group(label, some, facts_of) for label, some in members.items())


def _group(label: str, runs: Sequence[RunValues], facts_of: FactsOf) -> RunGroup:
    known = [facts.cost for run in runs if (facts := facts_of(run)) is not None]
    cost, priced = total(known)
    of_runs = f"; {priced} of {len(runs)} runs recorded their GPUs" if 0 < priced < len(runs) else ""
    projects = list(dict.fromkeys(run.run.project for run in runs))
    ranked = [_best([run for run in runs if run.run.project == project], facts_of) for project in projects]
    sentences = [
        f"{project}: {sentence}" if len(projects) > 1 else sentence
        for project, (_, of_project) in zip(projects, ranked, strict=True)
        for sentence in (of_project if len(projects) == 1 else of_project[:1])
    ]
    return RunGroup(
        label=label,
        runs=tuple(run.run.path for run in runs),
        cost=cost,
        spent=f"{cost.words}{of_runs}" if cost.words else "",
        best=tuple(best for best, _ in ranked if best),
        sentences=tuple(sentences),
    )


def total(costs: Iterable[Cost]) -> tuple[Cost, int]:
    """Return the sum of costs, and of how many the GPU-hours are known; the wasted share is one of the known hours."""
    every = list(costs)
    hours = [cost.gpu_hours for cost in every if cost.gpu_hours is not None]
    shares = [
        (cost.gpu_hours, cost.wasted_share)
        for cost in every
        if cost.gpu_hours is not None and cost.wasted_share is not None
    ]
    spent, tokens = sum(of for of, _ in shares), [cost.tokens for cost in every if cost.tokens is not None]
    money = [cost.money for cost in every if cost.money is not None]
    together = Cost(
        gpu_hours=sum(hours) if hours else None,
        wasted_share=sum(of * share for of, share in shares) / spent if spent else None,
        tokens=sum(tokens) if tokens else None,
        money=sum(money) if money else None,
    )
    return together, len(hours)


def _best(runs: Sequence[RunValues], facts_of: FactsOf) -> tuple[str, tuple[str, ...]]:
    """Return the best run of a project, and sentences about it."""
    ranked = next((levels for topic in _GOALS if len(levels := _ranked(runs, topic)) > 1), [])
    doubted: list[str] = []
    for place, level in enumerate(ranked):
        facts = facts_of(level.run)
        if facts is None:
            return "", ()
        if doubt := _doubt(facts, level.name):
            doubted.append(f"{level.words} seems better, but: {doubt}")
            continue
        of_runs = f"Best of {len(ranked)} by the mean of the last {RECENT_STEPS} values: {level.words}."
        close = [other.run.run.name for other in ranked[place + 1 :] if not level.is_clear_of(other)]
        equals = [f"Not clearly better than {wording.names(close[:_MOST_NAMED])}."] if close else []
        return level.run.run.path, (of_runs, *equals, *doubted[:_MOST_NAMED])
    return "", tuple(doubted[:_MOST_NAMED])


def _ranked(runs: Iterable[RunValues], topic: Topic) -> list[_Level]:
    """Return the levels of the runs that have a metric of a topic, the best first."""
    levels = [level for run in runs if (level := _level(run, topic)) is not None]
    return sorted(levels, key=lambda level: level.mean, reverse=best_of(topic) == "highest")


def _level(run: RunValues, topic: Topic) -> _Level | None:
    """Return the last level of a metric, unless its last value is not finite."""
    curves = {curve.name: curve.points[-RECENT_STEPS:] for curve in run.run.progress.curves if curve.points}
    name = main_of(tuple(curves)).name(topic)
    values = [value for _, value in curves.get(name, ()) if value is not None and math.isfinite(value)]
    if not values or curves[name][-1][1] is None:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return _Level(run, name, statistics.fmean(values), error)


def _doubt(facts: Facts, name: str) -> str:
    """Return why the level of a metric is not to be believed: what needs somebody, or a warning about the metric."""
    about = (finding for finding in facts.findings if finding.severity == "warning" and name in finding.evidence.names)
    worst = (finding for finding in facts.findings if finding.severity == "bad")
    return next((finding.sentence for finding in (*worst, *about)), "")

"""Splits worker time into categories that sum to wall time times workers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from otel_rl import semconv
from otel_rl.agent.hardware.measurement import Point
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import AttributeValue
    from otel_rl.journal.records import Started

PRODUCTIVE, WASTED, UNCLASSIFIED, UNACCOUNTED = "productive", "wasted", "unclassified", "unaccounted"
ROLLOUTS = (semconv.SPAN_ROLLOUT, semconv.SPAN_TRAJECTORY)
"""Names of spans that are roots of traces which wait for a step."""
TRAINER = "trainer"
"""The fleet of the ranks without a role."""
_MOST_NAMES = 1000
_MOST = (1 << 63) - 1
"""The largest sum: a checkpoint has 64 bits for each, and 292 years in nanoseconds fit in them."""
_Key = TypeVar("_Key")

Name = tuple[str, str]
"""A phase, and a part of it or nothing; both empty for time in no phase."""
_NOWHERE, _WASTED, _OTHER = ("", ""), ("", WASTED), ("", UNCLASSIFIED)


Nanoseconds = dict[Name, int]
"""Nanoseconds by phase and part."""
_NOTHING: Nanoseconds = {}


class OpenName(msgspec.Struct):
    """A phase that is open, and the nanoseconds that count as its own since the end of the last step."""

    name: Name
    nanoseconds: int = 0


class Worker(msgspec.Struct):
    """A process, whose time is accounted for up to `until`, with its open phases in the order in which they began."""

    fleet: str
    until: int
    open: dict[int, OpenName] = {}
    since_step: Nanoseconds = {}


class LastStep(msgspec.Struct):
    """The time of a process in its last step."""

    fleet: str
    nanoseconds: Nanoseconds


class TimeSpent(msgspec.Struct):
    """The time of all processes so far: plain data, part of the reducer's state.

    Attributes:
        workers: The processes that are alive, by journal.
        steps: The time of the trainer's ranks, by attempt and step, until the step closes.
        last: The last step of each process of the last attempt, by journal.
        last_attempt: The number of that attempt.
        generated: Tokens of trajectories, by fleet.
        sampling: Nanoseconds that were spent on them, by fleet.
    """

    workers: dict[str, Worker] = {}
    fleets: dict[str, Nanoseconds] = {}
    steps: dict[int, dict[int, Nanoseconds]] = {}
    last: dict[str, LastStep] = {}
    last_attempt: int = 0
    generated: dict[str, int] = {}
    sampling: dict[str, int] = {}


class Goodput:
    """Adds up the time of all processes, from the beginning of each.

    While several phases are open, time counts for the innermost one, the last to begin. A phase with `tokens=` and
    `wasted_tokens=` counts that share of its time as wasted. A fleet counts the tokens of dropped trajectories as
    wasted, at the average time per token. `canonical` returns the canonical name of a phase for the trainer's name.
    """

    def __init__(self, spent: TimeSpent, canonical: Callable[[str], str]) -> None:
        self._spent, self._canonical = spent, canonical

    def enter(self, journal: str, started: Started, span: int, name: Name, time: int) -> None:
        """Record that a process enters a phase, or a part of one."""
        worker = self._advance(journal, started, time)
        worker.open[span] = OpenName(name)

    def leave(
        self, journal: str, started: Started, span: int, time: int, attributes: Mapping[str, AttributeValue] | None
    ) -> None:
        """Record that a process leaves a phase, with the attributes of the phase."""
        worker = self._advance(journal, started, time)
        left = worker.open.pop(span, None)
        if left is None or not attributes:
            return
        if (wasted := round(left.nanoseconds * _wasted_share(attributes))) and self._category(left.name) == PRODUCTIVE:
            self._give(worker, left.name, -wasted)
            self._give(worker, _WASTED, wasted)
        tokens = attributes.get(semconv.TRAJECTORY_TOKENS)
        if left.name[0] in ROLLOUTS and isinstance(tokens, int):
            _add(self._spent.generated, worker.fleet, tokens)

    def begin_step(self, journal: str, started: Started, time: int, *, first: bool) -> None:
        """Record that a process begins a step; its time between two steps belongs to the later one."""
        worker = self._advance(journal, started, time)
        if first:
            self._mark(worker)

    def end_step(self, journal: str, started: Started, step: int, time: int) -> None:
        """Record that a process ends a step."""
        worker = self._advance(journal, started, time)
        if worker.fleet == TRAINER:
            of_step = self._spent.steps.setdefault(started.attempt, {}).setdefault(step, {})
            for name, nanoseconds in worker.since_step.items():
                _add(of_step, name, nanoseconds)
        if started.attempt > self._spent.last_attempt:
            self._spent.last_attempt, self._spent.last = started.attempt, {}
        self._spent.last[journal] = LastStep(worker.fleet, worker.since_step)
        self._mark(worker)

    def end(self, journal: str, started: Started, time: int) -> None:
        """Record that a process has ended."""
        worker = self._advance(journal, started, time)
        if worker.fleet != TRAINER:
            self._spent.last.setdefault(journal, LastStep(worker.fleet, worker.since_step))
        self._spent.workers.pop(journal, None)

    def resume(self, journal: str, started: Started, time: int) -> None:
        """Record that a process is alive that counted as dead since `time`."""
        self._spent.workers[journal] = Worker(started.role or TRAINER, time)

    def of_step(self, attempt: int, step: int) -> dict[str, float]:
        """Return the seconds of the trainer's ranks in a step by category, and forget them."""
        return self._by_category(self._spent.steps.get(attempt, {}).pop(step, {}))

    def drop(self, tokens: int) -> None:
        """Record that this many tokens of trajectories were dropped; each costs the average time per token."""
        generated = sum(self._spent.generated.values())
        for fleet in self._spent.generated if generated else ():
            totals = self._spent.fleets[fleet]
            sampling = {name: n for name, n in totals.items() if n > 0 and self._samples(name)}
            left = sum(sampling.values())
            wasted = min(left, tokens * self._spent.sampling.get(fleet, 0) // generated)
            for name, nanoseconds in sampling.items():
                share = wasted * nanoseconds // left
                totals[name] -= share
                _add(totals, _WASTED, share)

    def last_step(self, journal: str) -> Mapping[Name, int]:
        """Return the nanoseconds of the last step of a process, by phase; of its whole time if it marks no steps."""
        if (last := self._spent.last.get(journal)) is not None:
            return last.nanoseconds
        worker = self._spent.workers.get(journal)
        return _NOTHING if worker is None or worker.fleet == TRAINER else dict(worker.since_step)

    def last_steps(self) -> Mapping[Name, int]:
        """Return the nanoseconds of the last steps of all trainer ranks, by phase."""
        found: Nanoseconds = {}
        for last in self._spent.last.values():
            for name, count in last.nanoseconds.items() if last.fleet == TRAINER else ():
                _add(found, name, count)
        return found

    def of_fleet(self, fleet: str) -> Mapping[Name, int]:
        """Return the nanoseconds of a fleet so far, by phase; those of an open phase count up to the last record."""
        return self._spent.fleets.get(fleet, {})

    def points(self) -> list[Point]:
        """Return the seconds so far, by fleet and category."""
        return [
            Point(semconv.METRIC_GOODPUT_TIME, seconds, ((semconv.GOODPUT_CATEGORY, category), (semconv.ROLE, fleet)))
            for fleet, totals in self._spent.fleets.items()
            for category, seconds in self._by_category(totals).items()
        ]

    def _advance(self, journal: str, started: Started, time: int) -> Worker:
        """Add the time since the last call to the innermost open phase."""
        worker = self._spent.workers.get(journal)
        if worker is None:
            worker = self._spent.workers[journal] = Worker(started.role or TRAINER, min(started.time, time))
        nanoseconds = time - worker.until
        if nanoseconds > 0:
            worker.until = time
            innermost = next(reversed(worker.open.values()), None)
            if innermost is not None:
                innermost.nanoseconds += nanoseconds
            name = _NOWHERE if innermost is None else innermost.name
            self._give(worker, name, nanoseconds)
            if self._samples(name):
                _add(self._spent.sampling, worker.fleet, nanoseconds)
        return worker

    def _give(self, worker: Worker, name: Name, nanoseconds: int) -> None:
        totals = self._spent.fleets.setdefault(worker.fleet, {})
        key = name if name in totals or len(totals) < _MOST_NAMES else _OTHER
        _add(totals, key, nanoseconds)
        _add(worker.since_step, key, nanoseconds)

    def _mark(self, worker: Worker) -> None:
        worker.since_step = {}
        for span in worker.open.values():
            span.nanoseconds = 0

    def _by_category(self, nanoseconds: Mapping[Name, int]) -> dict[str, float]:
        found: dict[str, int] = {}
        for name, count in nanoseconds.items():
            _add(found, self._category(name), count)
        return {category: count / 1e9 for category, count in found.items()}

    def _category(self, name: Name) -> str:
        if name in (_NOWHERE, _WASTED):
            return UNACCOUNTED if name == _NOWHERE else WASTED
        if name[0] in ROLLOUTS:
            return PRODUCTIVE
        of_phase = categories().get(self._canonical(name[0]), UNCLASSIFIED)
        return categories().get(name[1], of_phase) if name[1] else of_phase

    def _samples(self, name: Name) -> bool:
        """Return whether it is the sampling of trajectories."""
        return name[0] in ROLLOUTS or registry.stages().get(self._canonical(name[0])) == "sample"


@cache
def categories() -> dict[str, str]:
    """Return the category of each phase that has one."""
    listed = msgspec.yaml.decode(registry.content("time_categories.yaml"), type=dict[str, list[str]])
    return {phase: category for category, phases in listed.items() for phase in phases}


def _add(counts: dict[_Key, int], key: _Key, count: int) -> None:
    counts[key] = min(counts.get(key, 0) + count, _MOST)


def _wasted_share(attributes: Mapping[str, AttributeValue]) -> float:
    tokens, wasted = attributes.get("tokens"), attributes.get("wasted_tokens")
    if not isinstance(tokens, (int, float)) or not isinstance(wasted, (int, float)) or tokens <= 0:
        return 0.0
    return min(1.0, max(0.0, wasted / tokens))

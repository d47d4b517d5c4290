"""Splits the time of processes into categories that sum to wall time times workers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeVar

import msgspec

from otel_rl import semconv
from otel_rl.analysis import Point
from otel_rl.recorder.agent.steps.state import ROLLOUTS
from otel_rl.recorder.facts.goodput import HUNG, PRODUCTIVE, WASTED, counts_as, wasted_share
from otel_rl.recorder.facts.own_time import PhasePart
from otel_rl.recorder.journal.records import TRAINED
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import Consumed, SpanStarted

TRAINER = "trainer"
"""The fleet of the ranks without a role."""
_MOST = (1 << 63) - 1
"""The largest sum: a checkpoint has 64 bits for each, and 292 years in nanoseconds fit in them."""
_Key = TypeVar("_Key")

Nanoseconds = dict[PhasePart, int]
"""Nanoseconds by phase and part."""


class TimeSpent(msgspec.Struct):
    """The facts about time that the clocks of processes lack: plain data, part of the reducer's state."""

    fleets: dict[str, Nanoseconds] = {}  # by fleet, what agents of version 0.1.0 counted
    of_steps: dict[int, dict[int, dict[str, int]]] = {}
    """The nanoseconds of the trainer's ranks by category, by attempt and step, until the step closes."""
    wasted: dict[str, Nanoseconds] = {}  # the part of the time of phases that was wasted, by fleet
    wasted_in_step: dict[str, Nanoseconds] = {}  # that since the end of its last step, by journal
    generated: dict[str, int] = {}  # tokens of trajectories, by fleet
    hung: Nanoseconds = {}  # the part of the time of ranks in which none made progress
    hung_in_step: dict[str, Nanoseconds] = {}  # that since the end of its last step, by journal


class Goodput:
    """The time of all processes by fleet and category, from their clocks and what phases say of their tokens.

    A phase with `tokens=` and `wasted_tokens=` counts that share of its time as wasted. A fleet counts the tokens of
    dropped trajectories as wasted, at the average time per token.
    """

    def __init__(self, spent: TimeSpent, journals: Mapping[str, Journal]) -> None:
        self._spent, self._journals = spent, journals

    def leave(
        self,
        name: str,
        journal: Journal,
        begun: SpanStarted,
        attributes: Mapping[str, AttributeValue],
        own_ns: int | None,
    ) -> None:
        """Take what a span says of its tokens at its end."""
        phase, fleet = (begun.name, begun.part), _fleet(journal)
        if own_ns and (wasted := round(own_ns * wasted_share(attributes))) and counts_as(phase) == PRODUCTIVE:
            for of in (self._spent.wasted.setdefault(fleet, {}), self._spent.wasted_in_step.setdefault(name, {})):
                _add(of, phase, wasted)
        tokens = attributes.get(semconv.TRAJECTORY_TOKENS)
        if begun.name in ROLLOUTS and isinstance(tokens, int):
            _add(self._spent.generated, fleet, tokens)

    def hang(self, name: str, phase: PhasePart, nanoseconds: int) -> None:
        """Take time of a rank in which none made progress."""
        for of in (self._spent.hung, self._spent.hung_in_step.setdefault(name, {})):
            _add(of, phase, nanoseconds)

    def end_step(self, name: str, journal: Journal, step: int) -> None:
        """Take the time of a process in a step that it has ended."""
        wasted, hung = self._spent.wasted_in_step.pop(name, {}), self._spent.hung_in_step.pop(name, {})
        if journal.is_rank:
            of_step = self._spent.of_steps.setdefault(journal.started.attempt, {}).setdefault(step, {})
            for category, nanoseconds in _by_category(journal.time.last_step, wasted, hung):
                _add(of_step, category, nanoseconds)

    def of_step(self, attempt: int, step: int) -> dict[str, int]:
        """Return the nanoseconds of the trainer's ranks in a step by category, and forget them."""
        return self._spent.of_steps.get(attempt, {}).pop(step, {})

    def drop(self, tokens: int) -> None:
        """Record that this many tokens of trajectories were dropped; each costs the average time per token."""
        generated = sum(self._spent.generated.values())
        if not tokens or not generated:
            return
        for fleet, totals in self._totals().items():
            if fleet not in self._spent.generated:
                continue
            known = self._spent.wasted.setdefault(fleet, {})
            sampling = {name: count for name, count in totals.items() if category_of(name[0]) == "rollout"}
            left = {name: count - known.get(name, 0) for name, count in sampling.items() if count > known.get(name, 0)}
            whole = sum(left.values())
            wasted = min(whole, tokens * sum(sampling.values()) // generated)
            for name, count in left.items():
                _add(known, name, wasted * count // whole)

    def points(self) -> list[Point]:
        """Return the seconds so far, by fleet and category."""
        points = []
        for fleet, totals in self._totals().items():
            counts: dict[str, int] = {}
            hung = self._spent.hung if fleet == TRAINER else {}
            for category, nanoseconds in _by_category(totals, self._spent.wasted.get(fleet, {}), hung):
                _add(counts, category, nanoseconds)
            for category, count in counts.items():
                who = ((semconv.GOODPUT_CATEGORY, category), (semconv.ROLE, fleet))
                points.append(Point(semconv.METRIC_GOODPUT_TIME, count / 1e9, who))
        return points

    def _totals(self) -> dict[str, Nanoseconds]:
        """Return the time of each fleet by phase; that of an open phase counts up to the last boundary."""
        fleets = {fleet: dict(totals) for fleet, totals in self._spent.fleets.items()}
        for journal in self._journals.values():
            totals = fleets.setdefault(_fleet(journal), {})
            for name, count in journal.time.spent.items():
                totals[name] = totals.get(name, 0) + count
        return fleets


def dropped_tokens(records: Iterable[Consumed]) -> int:
    """Return how many tokens were generated for trajectories that are not trained on."""
    return sum(sum(array("q", record.segments)[2::3]) for record in records if record.outcome != TRAINED)


def _fleet(journal: Journal) -> str:
    return journal.started.role or TRAINER


def _by_category(
    nanoseconds: Mapping[PhasePart, int], wasted: Mapping[PhasePart, int], hung: Mapping[PhasePart, int]
) -> Iterator[tuple[str, int]]:
    for name, count in nanoseconds.items():
        stood = min(count, hung.get(name, 0))
        lost = min(count - stood, wasted.get(name, 0))
        yield counts_as(name), count - stood - lost
        yield from ((category, part) for category, part in ((HUNG, stood), (WASTED, lost)) if part)


def _add(counts: dict[_Key, int], key: _Key, count: int) -> None:
    counts[key] = min(counts.get(key, 0) + count, _MOST)

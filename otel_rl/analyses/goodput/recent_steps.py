"""The own times of phases in the last whole steps, for `now.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.recorder.facts.goodput import HUNG, within
from otel_rl.recorder.facts.own_time import PhaseInterval, closed, own_times
from otel_rl.recorder.facts.step_time import RECENT_STEPS
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.export import Span
    from otel_rl.recorder.agent.steps.closed import Closed
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.facts.goodput import Interval


_MAY_HANG = 2
"""Steps whose phases are kept: a hang is known a minute after it began, when other ranks have closed its step."""
_MOST_PHASES = 1000
"""Phases of a process in a step that are kept; with more, hangs that are not known yet are not taken off."""


class RecentStep(msgspec.Struct):
    """A step that has closed: the own time of its phases in nanoseconds."""

    attempt: int
    number: int
    seconds: float = 0.0  # its time
    of_ranks: dict[str, int] = {}  # of the ranks, by phase, with the time in hangs that `phases` has
    of_others: dict[str, int] = {}  # of processes with a role
    ranks: set[str] = set()  # the journals of the ranks with phases
    others: set[str] = set()  # those of processes with a role
    began: int = 0  # when its first rank began it
    phases: list[list[tuple[str, PhaseInterval]]] = []  # the phases of ranks, of one process each

    def without(self, hangs: Sequence[Interval]) -> dict[str, int]:
        """Return the own time of the ranks without that in hangs."""
        own = dict(self.of_ranks)
        for phases in self.phases if hangs else ():
            intervals = [interval for _, interval in phases]
            for hang in hangs:
                for (phase, _), nanoseconds in zip(phases, own_times(intervals, hang), strict=True):
                    own[phase] = max(0, own.get(phase, 0) - nanoseconds)
        return own

    def settle(self, hangs: Sequence[Interval]) -> None:
        """Take off the time in the hangs that are known, and forget the phases."""
        self.of_ranks, self.phases = self.without(hangs), []


class RecentSteps:
    """The last whole steps of the valid history, of which late records may still come."""

    def __init__(self, steps: list[RecentStep]) -> None:
        self._steps = steps

    def add(
        self,
        closed_step: Closed,
        journals: Mapping[str, Journal],
        values: Mapping[str, float],
        hangs: Sequence[Interval],
    ) -> None:
        """Take a step that has closed, with the values of its row; or what came late for it."""
        attempt, number, whole, late = closed_step
        steps = self._steps
        if not late:
            while steps and steps[-1].attempt < attempt and steps[-1].number >= number:
                steps.pop()
            steps.append(RecentStep(attempt, number))
            del steps[: -RECENT_STEPS - 1]  # one more: the last one is left out if a process dies in it
        step = next((one for one in steps if (one.attempt, one.number) == (attempt, number)), None)
        if step is None:
            return
        if whole.is_partial:
            steps.remove(step)
            return
        step.seconds = max(step.seconds, values.get(STEP_TIME, 0.0))
        step.began = min(whole.begun.values(), default=0) if not step.began else step.began
        for name, one in whole.by.items():
            is_rank = journals[name].is_rank
            own = step.of_ranks if is_rank else step.of_others
            for phase, nanoseconds in one.own.items():
                own[phase] = own.get(phase, 0) + nanoseconds
            if one.own:
                (step.ranks if is_rank else step.others).add(name)
            if is_rank:
                step.phases.append(_phases(one.spans))
                if len(one.spans) > _MOST_PHASES:
                    step.settle(hangs)
        for settled in steps[:-_MAY_HANG]:
            settled.settle(hangs)

    def own(self, hangs: Sequence[Interval]) -> dict[str, float]:
        """Return the own time of each phase, the time outside of any, and that of hangs.

        They are those of the ranks, or of others if ranks have no phases.
        """
        steps = self._steps[-RECENT_STEPS:]
        of_ranks = any(step.of_ranks for step in steps)
        times = [time for step in steps for time in (step.without(hangs) if of_ranks else step.of_others).items()]
        if of_ranks and hangs:
            times += [(HUNG, len(step.ranks) * _hung_in(step, hangs)) for step in steps]
        total = sum(len(step.ranks if of_ranks else step.others) * step.seconds for step in steps)
        return closed(times, total * 1e9) if times else {}


def _hung_in(step: RecentStep, hangs: Sequence[Interval]) -> int:
    return within(hangs, step.began, step.began + round(step.seconds * 1e9))


def _phases(spans: Sequence[Span]) -> list[tuple[str, PhaseInterval]]:
    return [
        (str(phase), PhaseInterval(span.start_unix_nano, span.end_unix_nano, span.span_id, span.parent_id))
        for span in spans
        if (phase := span.attributes.get(semconv.PHASE)) is not None
    ]

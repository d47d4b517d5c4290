"""When a step closes, which makes its row and its trace.

A step closes when every rank that takes part has passed it or ended. A rank that has not passed it is waited for until
nothing has come from it, nor for the step, for the deadline, and another rank has left the step. A step that no rank
has begun is not late. Later records for a step make a further row of it, which follows the same rule.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from otel_rl.recorder.agent.steps.state import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.steps.apply import Applier
    from otel_rl.recorder.agent.steps.attempts import Attempts
    from otel_rl.recorder.agent.steps.contribution import Contribution
    from otel_rl.recorder.agent.steps.state import Journal, State


class Closing:
    """The rule of when steps close.

    Attributes:
        met: When the first process of each attempt was met, on the agent's clock.
        active: When each process recorded last, on that clock.
    """

    def __init__(self, state: State, attempts: Attempts, applier: Applier, deadline: int, *, whole_world: bool) -> None:
        self._state, self._attempts, self._applier = state, attempts, applier
        self._deadline, self._whole_world = deadline, whole_world
        self.met: dict[int, int] = {}
        self.active: dict[str, int] = {}

    def settled(self, attempt: int, *, overdue: bool = False) -> list[int]:
        """Return the steps of an attempt that close now, in ascending order; with `overdue`, also at the deadline."""
        steps = self._state.steps[attempt]
        if not steps or self.ranks_are_awaited(attempt) or self._is_held_up(attempt):
            return []
        workers = _workers(self._attempts.members(attempt))
        awaited = {name: one for name, one in workers.items() if not one.over}
        return [
            number
            for number in sorted(steps)
            if self._closes(attempt, number, steps[number], awaited)
            or (overdue and self._is_overdue(attempt, number, workers, awaited))
        ]

    def _closes(
        self, attempt: int, number: int, step: Mapping[str, Contribution], awaited: Mapping[str, Journal]
    ) -> bool:
        is_late = self._state.is_closed(attempt, number)  # then only those that have recorded for it again are awaited
        return all(one.done_below > number for name, one in awaited.items() if not is_late or name in step)

    def _is_overdue(
        self, attempt: int, number: int, workers: Mapping[str, Journal], awaited: Mapping[str, Journal]
    ) -> bool:
        """Return whether a step that one worker has left has waited for the others for the deadline."""
        step = self._state.steps[attempt][number]
        if not any(_has_left(workers[name], number, one) for name, one in step.items() if name in workers):
            return False
        long_ago = self._applier.now - self._deadline
        # Counted from now after a restart of the agent, whose clock has another origin: steps wait again, but not
        # forever (faults/test_agent_clocks.py).
        heard = [self._applier.heard.setdefault((attempt, number), self._applier.now)]
        heard += [
            self.active.setdefault(name, self._applier.now) for name, one in awaited.items() if one.done_below <= number
        ]
        return max(heard) < long_ago

    def ranks_are_awaited(self, attempt: int) -> bool:
        """Return whether ranks have not begun yet, and the deadline has not passed."""
        members = self._attempts.members(attempt).values()
        ranks = [journal for journal in members if journal.is_rank]
        sizes = (one.started.world_size if self._whole_world else one.started.local_world_size for one in ranks)
        expected = max(sizes, default=0)
        begun = sum(journal.takes_part or journal.over for journal in ranks)
        may_come = self._whole_world and len(ranks) < expected  # a machine may be slow to start or to send
        if begun >= expected or (not may_come and all(journal.over for journal in members)):
            return False
        now = self._applier.now
        return now - self.met.setdefault(attempt, now) <= self._deadline

    def _is_held_up(self, attempt: int) -> bool:
        """Return whether a restarted process has records of an earlier attempt that were not read yet."""
        if attempt == 0:
            return False
        # Rows of the attempt before must come first: those of this one make its later steps void
        # (faults/test_attempts.py).
        again = {(one.started.role, one.started.rank) for one in self._attempts.members(attempt).values()}
        return any(
            journal.started.attempt < attempt
            and not journal.over
            # A machine that is switched off never reports an end, and would hold up the next attempt forever.
            and not is_remote(name)
            and (journal.started.role, journal.started.rank) in again
            for name, journal in self._state.journals.items()
        )


def _workers(members: Mapping[str, Journal]) -> dict[str, Journal]:
    """Return the processes that steps belong to: of those alive, those that mark steps and the ranks, if there are any.

    Processes that have ended belong to them if they are of the same kind.
    """
    chosen = {name: one for name, one in members.items() if one.takes_part}
    for has_trait in (attrgetter("uses_steps"), attrgetter("is_rank")):
        if any(has_trait(one) for one in chosen.values() if not one.over):
            chosen = {name: one for name, one in chosen.items() if has_trait(one)}
    return chosen


def _has_left(journal: Journal, number: int, contribution: Contribution) -> bool:
    """Return whether a process has worked on a step, and does so no more.

    A process whose first step was named by `log` may be about to begin that step.
    """
    if journal.over:
        return not contribution.is_abandoned
    if journal.step == number or journal.position < number:
        return False
    return journal.position > number or journal.uses_steps or journal.has_moved

"""The own times of phases in the last steps, for `now.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.facts.own_time import closed
from otel_rl.recorder.facts.step_time import RECENT_STEPS
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.steps.closed import Closed
    from otel_rl.recorder.agent.steps.state import Journal


class RecentStep(msgspec.Struct):
    """A step that has closed: the own time of its phases in nanoseconds."""

    attempt: int
    number: int
    seconds: float = 0.0  # its time
    of_ranks: dict[str, int] = {}  # of the ranks, by phase
    of_others: dict[str, int] = {}  # of processes with a role
    ranks: set[str] = set()  # the journals of the ranks with phases
    others: set[str] = set()  # those of processes with a role


class RecentSteps:
    """The last steps of the valid history, of which late records may still come."""

    def __init__(self, steps: list[RecentStep]) -> None:
        self._steps = steps

    def add(self, closed_step: Closed, journals: Mapping[str, Journal], values: Mapping[str, float]) -> None:
        """Take a step that has closed, with the values of its row; or what came late for it."""
        attempt, number, whole, late = closed_step
        steps = self._steps
        if not late:
            while steps and steps[-1].attempt < attempt and steps[-1].number >= number:
                steps.pop()
            steps.append(RecentStep(attempt, number))
            del steps[:-RECENT_STEPS]
        step = next((one for one in steps if (one.attempt, one.number) == (attempt, number)), None)
        if step is None:
            return
        step.seconds = step.seconds or values.get(STEP_TIME, 0.0)
        for name, one in whole.by.items():
            is_rank = journals[name].is_rank
            own = step.of_ranks if is_rank else step.of_others
            for phase, nanoseconds in one.own.items():
                own[phase] = own.get(phase, 0) + nanoseconds
            if one.own:
                (step.ranks if is_rank else step.others).add(name)

    def own(self) -> dict[str, float]:
        """Return the own time of each phase and the time outside of any, of the ranks; of others if ranks have none."""
        of_ranks = any(step.of_ranks for step in self._steps)
        times = [time for step in self._steps for time in (step.of_ranks if of_ranks else step.of_others).items()]
        total = sum(len(step.ranks if of_ranks else step.others) * step.seconds for step in self._steps)
        return closed(times, total * 1e9) if times else {}

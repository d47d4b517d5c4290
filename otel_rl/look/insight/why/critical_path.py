"""The critical path of a step, walked back from its end, and what the step would take if some work was faster.

Source: C.-Q. Yang and B. P. Miller, "Critical Path Analysis for the Execution of Parallel and Distributed Programs"
(ICDCS 1988), and CRISP (USENIX ATC 2022): from each end, follow what ended last before it. The parts add up to the time
of the step exactly, since each begins where the one before it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.why.causes import in_order
from otel_rl.look.insight.why.recorded_causes import START, Label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.why.causes import Causes
    from otel_rl.look.insight.why.folded_spans import InnerSpans


class Hop(NamedTuple):
    """A part of the path: what happened, from when to when, and whether its cause was inferred."""

    label: Label
    began: int
    ended: int
    is_inferred: bool


def path_of(causes: Causes, inner: InnerSpans) -> list[Hop]:
    """Return the critical path, the first part first; it goes back to the begin of the window, before the step."""
    event, ended, hops = causes.end, causes.times[causes.end], []
    seen: set[int] = set()
    while event != START:
        seen.add(event)  # by clocks that differ, two events can have waited for each other
        before = [earlier for earlier in causes.before(event) if earlier not in seen]
        cause = causes.cause(event, before, causes.times) if before else START
        known = causes.times[cause if cause != START else causes.begin]
        began = min(known, ended)  # by its own clock, a cause can be later than its effect
        inside = [
            Hop(Label(segment.work, segment.who), max(segment.began, began), min(segment.ended, ended), False)
            for segment in inner.segments(causes.trajectory_at(event))
        ]
        hops += inside[::-1] or [Hop(causes.labels[event], began, ended, (event, cause) in causes.inferred)]
        event, ended = cause, began
    return [hop for hop in reversed(hops) if hop.ended > hop.began]


class StepReplay:
    """A step, to be replayed with other times of its work.

    Each event comes when all that it waited for has come and its own work is done, as in OSDI 2025, "Understanding
    Stragglers in Large Model Training Using What-if Analysis".

    Attributes:
        events: The events, each after those that it waited for.
        took: The nanoseconds of the work up to each of them.
        unchanged: The seconds of the step as it was; by clocks that differ, not quite its wall time.
    """

    def __init__(self, causes: Causes) -> None:
        self._causes = causes
        self._before: list[Sequence[int]] = []
        self.events: list[int] = []
        self.took: list[int] = []
        for event, before in in_order(causes):
            if causes.times[event] > causes.times[START]:
                took = causes.times[event] - causes.times[causes.cause(event, before, causes.times)]
                self.events.append(event)
                self._before.append(before)
                self.took.append(max(0, took))
        self.unchanged = self.seconds(self.took)

    def seconds(self, took: Sequence[int]) -> float:
        """Return the time of the step if the work up to each event took other nanoseconds."""
        times = list(self._causes.times)
        cause = self._causes.cause
        for event, before, now, was in zip(self.events, self._before, took, self.took, strict=True):
            is_known = before != (START,)  # what came before the window stays as it was
            times[event] = times[cause(event, before, times)] + (now if is_known else was)
        return (times[self._causes.end] - times[self._causes.begin]) / 1e9

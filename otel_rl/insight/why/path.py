"""The critical path of a step, walked back from its end, and what the step would take if some work was faster.

Source: C.-Q. Yang and B. P. Miller, "Critical Path Analysis for the Execution of Parallel and Distributed Programs"
(ICDCS 1988), and CRISP (USENIX ATC 2022): from each end, follow what ended last before it. The parts add up to the time
of the step exactly, since each begins where the one before it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight.why.causes import START, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.insight.why.causes import Causes, Label


class Hop(NamedTuple):
    """A part of the path: what happened, from when to when, and whether its cause was inferred."""

    label: Label
    began: int
    ended: int
    is_inferred: bool


def path_of(causes: Causes) -> list[Hop]:
    """Return the critical path, the first part first; it goes back to the begin of the window, before the step."""
    event, ended, found = causes.end, causes.times[causes.end], []
    while event != START:
        cause = causes.cause(event, causes.before(event), causes.times)
        known = causes.times[cause if cause != START else causes.begin]
        began = min(known, ended)  # by its own clock, a cause can be later than its effect
        if ended > began:
            found.append(Hop(causes.labels[event], began, ended, (event, cause) in causes.inferred))
        event, ended = cause, began
    return found[::-1]


class Replay:
    """A step, to be replayed with other times of its work.

    Each event comes when all that it waited for has come and its own work is done, as in OSDI 2025, "Understanding
    Stragglers in Large Model Training Using What-if Analysis".

    Attributes:
        works: The events, each after those that it waited for, and the nanoseconds of its own work.
        unchanged: The seconds of the step as it was; by clocks that differ, not quite its wall time.
    """

    def __init__(self, causes: Causes) -> None:
        self._causes = causes
        self.works: list[tuple[int, tuple[int, ...], Label, int]] = []
        for event, before in in_order(causes):
            if causes.times[event] <= causes.times[START]:
                continue
            took = causes.times[event] - causes.times[causes.cause(event, before, causes.times)]
            self.works.append((event, tuple(before), causes.labels[event], max(0, took)))
        self.unchanged = self.seconds(lambda _, took: took)

    def seconds(self, of: Callable[[Label, int], int]) -> float:
        """Return the time of the step if each work took what a function returns of its label and its nanoseconds."""
        times = list(self._causes.times)
        for event, before, label, took in self.works:
            is_known = before != (START,)  # what came before the window stays as it was
            times[event] = times[self._causes.cause(event, before, times)] + (of(label, took) if is_known else took)
        return (times[self._causes.end] - times[self._causes.begin]) / 1e9

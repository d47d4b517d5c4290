"""The own time of phases: each instant of a process belongs to its innermost open phase.

The innermost one is the last to begin, in whatever thread, and whether or not it ends before those that began earlier.
Parts count for their phase. So the own times of a process and its time outside of any phase sum to its whole time.
`ProcessTime` takes boundaries as they are recorded, `own_times` takes the spans of a process; both give the same.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PhasePart = tuple[str, str]
"""A phase, and a part of it or nothing; both empty outside of any phase."""
OUTSIDE: PhasePart = ("", "")
_OTHERS: PhasePart = ("", "other phases")
_MOST_NAMES = 1000
_MOST_LEVELS = 64
"""Levels of phases inside of phases; a damaged file may have a circle of parents."""


class OwnTime(msgspec.Struct):
    """A phase that is open, or a part of one, and its own nanoseconds so far."""

    name: PhasePart
    nanoseconds: int = 0


class ProcessTime(msgspec.Struct):
    """The time of a process up to its last boundary, shared out among its phases. Trajectories own what is outside."""

    until: int | None = None  # that boundary, in Unix nanoseconds; `None` before the first one
    phases: dict[int, OwnTime] = {}  # open phases and parts by span id, in the order in which they began
    trajectories: dict[int, str] = {}  # names of open trajectories by span id
    spent: dict[PhasePart, int] = {}  # nanoseconds so far
    since_step: dict[PhasePart, int] = {}  # those since it ended a step last
    last_step: dict[PhasePart, int] = {}  # those of its last step, with the time between the step before and it

    @property
    def innermost(self) -> PhasePart:
        """The owner of the time from now on: the innermost phase or part, else the trajectory."""
        if self.phases:
            return self.phases[next(reversed(self.phases))].name
        return (self.trajectories[next(reversed(self.trajectories))], "") if self.trajectories else OUTSIDE

    def advance(self, time: int) -> None:
        """Give the time up to a boundary to the innermost open phase."""
        # A clock that was set back, or a second thread, gives an earlier time: what follows it would count twice.
        nanoseconds = 0 if self.until is None else time - self.until
        if nanoseconds < 0:
            return
        self.until = time
        if not nanoseconds:
            return
        if self.phases:
            self.phases[next(reversed(self.phases))].nanoseconds += nanoseconds
        name = self.innermost
        spent, since_step = self.spent, self.since_step
        if name not in spent and len(spent) >= _MOST_NAMES:
            name = _OTHERS
        spent[name] = spent.get(name, 0) + nanoseconds
        since_step[name] = since_step.get(name, 0) + nanoseconds

    def enter(self, span: int, name: PhasePart, time: int) -> None:
        """Begin a phase, or a part of one."""
        self.advance(time)
        self.phases[span] = OwnTime(name)

    def enter_trajectory(self, span: int, name: str, time: int) -> None:
        """Begin a trajectory."""
        self.advance(time)
        self.trajectories[span] = name

    def leave(self, span: int, time: int) -> int | None:
        """End a span, and return the own time of a phase in nanoseconds; `None` for another span."""
        if span not in self.phases and span not in self.trajectories:
            return None
        self.advance(time)
        self.trajectories.pop(span, None)
        left = self.phases.pop(span, None)
        return None if left is None else left.nanoseconds

    def begin_first_step(self, time: int) -> None:
        """Leave out the time before the first step, which is of none."""
        self.advance(time)
        self.since_step = {}

    def end_step(self, time: int) -> None:
        """End a step, and begin to count the time of the next one."""
        self.advance(time)
        self.last_step, self.since_step = self.since_step, {}


class PhaseInterval(NamedTuple):
    """The span of a phase, or of a part of one: times in nanoseconds, and ids."""

    began: int
    ended: int
    span_id: object = None
    parent_id: object = None


def own_times(spans: Sequence[PhaseInterval], between: tuple[int, int] | None = None) -> list[int]:
    """Return the own time of each phase of a process in nanoseconds, of all of it or in an interval.

    Args:
        spans: All phases of the process and their parts, in any order. Of those that begin at the same time, a child
            is the inner one.
        between: The interval.
    """
    own = [0] * len(spans)
    first, last = between or (min((span.began for span in spans), default=0), max((s.ended for s in spans), default=0))
    order = _by_begin(spans)
    open_: list[tuple[int, int]] = []  # the places in the order, negative, and those of the spans; the innermost first
    now = first
    for number, place in enumerate([*order, None]):
        begin = last if place is None else min(last, max(first, spans[place].began))
        while open_ and now < begin:
            inner = open_[0][1]
            until = min(spans[inner].ended, begin)
            if until > now:
                own[inner] += until - now
                now = until
            if spans[inner].ended <= now:
                heappop(open_)
        now = max(now, begin)
        if place is not None:
            heappush(open_, (-number, place))
    return own


def _by_begin(spans: Sequence[PhaseInterval]) -> list[int]:
    """Return the places of spans in the order in which they began."""
    order = sorted(range(len(spans)), key=lambda place: (spans[place].began, -spans[place].ended))
    begins = [spans[place].began for place in order]
    if all(begin < after for begin, after in pairwise(begins)):
        return order
    parents = {span.span_id: span.parent_id for span in spans}
    return sorted(order, key=lambda place: (spans[place].began, _level(parents, spans[place].span_id)))


def _level(parents: Mapping[object, object], span_id: object) -> int:
    level = 0
    while level < _MOST_LEVELS and (span_id := parents.get(span_id)) in parents:
        level += 1
    return level


def closed(own: Iterable[tuple[str, float]], total: float) -> dict[str, float]:
    """Return the time of each phase and, without a name, outside of any, which sum to the total or to all phases.

    Args:
        own: Names of phases with own times; a name may come several times.
        total: The time that they are a part of, in the same unit.
    """
    spent: dict[str, float] = {}
    for name, time in own:
        spent[name] = spent.get(name, 0) + time
    rest = total - sum(spent.values())
    return spent | ({"": spent.get("", 0) + rest} if rest > 0 else {})


def largest_first(spent: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return phases with their times, the longest one first, without those that took no time."""
    return sorted(((name, time) for name, time in spent.items() if time > 0), key=lambda one: (-one[1], one[0]))

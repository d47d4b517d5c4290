"""Causes: for each begin and end of a span, the events that it waited for.

Recorded are the order in a process, parents and children, and which trajectories a step took. Inferred are ranks that
begin or leave a phase together, workers whose phase ends inside the phase of the trainer that waits for them, and
trajectories that begin after a weight sync.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from otel_rl.look.insight.phases import TOGETHER
from otel_rl.look.insight.why.recorded_causes import START, RecordedCauses, begin, end
from otel_rl.look.insight.why.step_spans import PARENT_IS_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from otel_rl.look.insight.why.folded_spans import FoldedWindow, WorkSpan
    from otel_rl.look.insight.why.step_spans import SpanProcess, StepWindow

_LEAST_SPREAD_NS = 1_000_000
_GIVES = ("rollout", "reward", "sync", "waiting")
"""Categories of phases in which a trainer waits for other processes."""
_TAKES = ("rollout", "waiting")
"""Categories of phases at whose end a trainer has its trajectories."""
_AWAITED = (("sync",), _GIVES)
_LATEST = 1 << 62
Phases = defaultdict[tuple[int, int], list[int]]
"""Places of phases by step and rank."""


class Causes(RecordedCauses):
    """The events of a window, with what they waited for in other processes.

    Attributes:
        begin: The begin of the step.
        end: The last event.
        inferred: Pairs of an event and a cause that was inferred.
        is_flow: Whether trajectories of other steps ran at the same time as those that the step took.

    Args:
        folded: The spans, by clocks that agree.
        phase: The phase that is explained, if it is not the whole step.
        slack: How far the clocks of different processes may still differ, in nanoseconds.
        most: How many trajectories each process runs at once at most.
    """

    def __init__(self, folded: FoldedWindow, phase: str, slack: int, most: Mapping[SpanProcess, int]) -> None:
        super().__init__(folded, slack, most)
        self.inferred: set[tuple[int, int]] = set()
        self.is_flow = _is_flow(folded)
        trainer = self._of_trainer()
        self.begin = self._first(folded.window)
        self.end = self._last(folded.window, trainer, phase)
        groups = self._groups(trainer)
        self._meet(groups)
        self._take(folded, trainer, groups)
        self._await(trainer)

    def _of_trainer(self) -> Phases:
        """Return the outermost phases of each trainer rank in each step, in their order."""
        phases: Phases = defaultdict(list)
        for n, doing in enumerate(self.doings):
            if doing.who.is_trainer and doing.parent == PARENT_IS_STEP:
                phases[doing.step, doing.who.rank].append(n)
        return phases

    def _groups(self, trainer: Phases) -> list[list[int]]:
        """Return the same phases of all ranks: of each name and step, the first of each rank, the second, and so on."""
        groups: defaultdict[tuple[int, str, int], list[int]] = defaultdict(list)
        for (step, _), phases in trainer.items():
            seen: defaultdict[str, int] = defaultdict(int)
            for n in phases:
                name = self.doings[n].work.name
                groups[step, name, seen[name]].append(n)
                seen[name] += 1
        return list(groups.values())

    def _meet(self, groups: Iterable[list[int]]) -> None:
        """Find where ranks wait for each other: they begin or leave a phase together after they came apart."""
        for group in groups:
            if len(group) > 1:
                self._join([begin(n) for n in group])
                self._join([end(n) for n in group])

    def _join(self, events: list[int]) -> None:
        """Let events wait for all that came before each, if they are together and those were not."""
        arrivals = {event: list(self.before(event)) for event in events}
        earlier = [max(self.times[event] for event in causes) for causes in arrivals.values()]
        times = [self.times[event] for event in events]
        spread = max(earlier) - min(earlier)
        apart = max(times) - min(times) - self._slack
        if spread < _LEAST_SPREAD_NS or apart > TOGETHER * spread or max(earlier) > min(times) + self._slack:
            return
        meeting = self._event(min(max(earlier), *times))
        self._instead[meeting] = []
        self._further[meeting] = [cause for causes in arrivals.values() for cause in causes]
        self.inferred.update((event, meeting) for event in events)
        self._instead |= {event: [meeting] for event in events}

    def _take(self, folded: FoldedWindow, trainer: Phases, groups: Iterable[list[int]]) -> None:
        """Let a rank wait for the trajectories that it took, and the ranks that took none as that one does."""
        same = {n: group for group in groups for n in group}
        takers = {(taken.step, taken.rank) for taken in folded.taken}
        for taken in folded.taken:
            ends = [end(trajectory) for trajectory in taken.trajectories]
            last = max(self.times[end] for end in ends)
            phases = trainer.get((taken.step, taken.rank), ())
            got = next((n for n in phases if _has_taken(self.doings[n], last - self._slack, taken.at)), None)
            after = next((n for n in phases if self.doings[n].ended > taken.at), None)
            which, phase = (begin, after) if got is None else (end, got)
            if phase is None:
                self._further[self.end if taken.step == folded.window.step else self.begin] += ends
                continue
            all_there = self._event(last)
            self._instead[all_there] = ends
            self._further[which(phase)].append(all_there)
            for other in same[phase]:
                if (taken.step, self.doings[other].who.rank) not in takers:
                    self._infer(which(other), all_there)

    def _await(self, trainer: Phases) -> None:
        """Find which phases of the trainer wait for other processes, and which of those wait for the trainer."""
        syncs, phases = ([n for places in trainer.values() for n in places if self._is(n, kinds)] for kinds in _AWAITED)
        ends = sorted((self.doings[n].ended, end(n)) for n in syncs)
        begins = sorted((self.doings[n].began, n) for n in phases)
        for n, doing in enumerate(self.doings):
            if doing.who.is_trainer or doing.parent >= 0 or doing.work.kind not in ("trajectory", "phase"):
                continue
            before = reversed(begins[: bisect_right(begins, (doing.began, _LATEST))])
            around = (outer for _, outer in before if self._is_around(outer, doing))
            asked = next((outer for outer in around if not self._is(outer, ("waiting",))), None)
            if asked is not None:
                self._infer(begin(n), begin(asked))
            if doing.work.kind == "phase":
                for outer in phases:
                    if self._is_around(outer, doing) and doing.ended <= self.doings[outer].ended:
                        self._infer(end(outer), end(n))
            last = bisect_right(ends, (doing.began, _LATEST))
            if last and not self._is(n, ("sync",)):
                self._infer(begin(n), ends[last - 1][1])

    def _is_around(self, phase: int, doing: WorkSpan) -> bool:
        """Return whether a phase of the trainer was open when a span of another process began that it can wait for."""
        outer = self.doings[phase]
        return outer.began <= doing.began < outer.ended and _serves(doing, outer)

    def _is(self, span: int, categories: Sequence[str]) -> bool:
        """Return whether a span is a phase of one of the categories."""
        return self.doings[span].work.kind == "phase" and self.doings[span].work.category in categories

    def _infer(self, event: int, cause: int) -> None:
        self._further[event].append(cause)
        self.inferred.add((event, cause))

    def _first(self, window: StepWindow) -> int:
        """Make the event at which the step begins, which waits for the ranks to end the step before."""
        first = self._event(window.began)
        ranks = [lane for who, lane in self._lanes.items() if who.is_trainer]
        before = ((lane, bisect_right(self._ends.get(lane, ()), window.began)) for lane in ranks)
        self._instead[first] = [end(self._children[lane][last - 1]) for lane, last in before if last]
        return first

    def _last(self, window: StepWindow, trainer: Phases, phase: str) -> int:
        """Make the last event, which waits for all ranks; of a phase, for its last end on each rank."""
        last = self._event(window.ended)
        ranks = [places for (step, _), places in trainer.items() if step == window.step]
        named = [end(n) for places in ranks for n in places if not phase or self.doings[n].work.name == phase]
        others = (end(n) for n, doing in enumerate(self.doings) if doing.step == window.step and doing.parent < 0)
        self._instead[last] = named or list(others) or [self.begin]
        return last


def _is_flow(folded: FoldedWindow) -> bool:
    """Return whether another trajectory was running when the last one ended that the step took."""
    mine = {n for taken in folded.taken if taken.step == folded.window.step for n in taken.trajectories}
    last = max((folded.doings[n].ended for n in mine), default=0)
    return any(
        doing.work.kind == "trajectory" and doing.began < last < doing.ended and n not in mine
        for n, doing in enumerate(folded.doings)
    )


def _has_taken(doing: WorkSpan, last: int, at: int) -> bool:
    """Return whether a phase can have got trajectories, the last of which ended and which were taken at some time."""
    return doing.work.category in _TAKES and last <= doing.ended <= at


def _serves(doing: WorkSpan, outer: WorkSpan) -> bool:
    """Return whether a phase of the trainer can wait for a span of another process."""
    category = outer.work.category
    if doing.work.kind == "trajectory":
        return category in _TAKES
    return doing.work.kind == "phase" and category in ("waiting", doing.work.category)


def in_order(causes: Causes) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the begin and the end of the step, and all that they waited for, each after what it waited for."""
    start = causes.times[START]
    known: dict[int, Sequence[int]] = {}
    done: set[int] = set()
    stack = [causes.end, causes.begin]
    while stack:
        event = stack[-1]
        if event in done:
            stack.pop()
        elif event in known:  # all that it waited for is done
            stack.pop()
            done.add(event)
            yield event, known[event]
        else:
            before = known[event] = causes.before(event) if causes.times[event] > start else ()
            stack += [event for event in before if event not in known]

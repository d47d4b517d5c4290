"""Causes: for each begin and end of a span, the events that it waited for.

Recorded are the order on a rank or worker, parents and children, and which trajectories a step took. Inferred are
ranks that begin or leave a phase together, workers whose phase ends inside the phase of the trainer that waits for
them, and trajectories that begin after a weight sync.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight.why.window import NOTHING, PARENT_IS_STEP, Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from otel_rl.insight.why.fold import Doing, Folded
    from otel_rl.insight.why.window import Window, Work

TOGETHER = 0.25
"""Part of the spread before within which ranks that waited for each other are together."""
_LEAST_SPREAD_NS = 1_000_000
_MOST_SIBLINGS = 64
"""Spans side by side of which the next one may have waited for each."""
_MOST_PLACES, _MOST_ENDED = 128, 16
"""Trajectories that run at once in a process, and those that ended last, of which the next one may have the place."""
_GIVES = ("rollout", "reward", "sync", "waiting")
"""Categories of phases in which a trainer waits for other processes."""
_TAKES = ("rollout", "waiting")
"""Categories of phases at whose end a trainer has its trajectories."""
_AWAITED = (("sync",), _GIVES)
_LATEST = 1 << 62
Phases = defaultdict[tuple[int, int], list[int]]
"""Places of phases by step and rank."""
NOBODY = Who("", -1, "")
START = 0
"""The event before all others: the begin of the window."""


class Label(NamedTuple):
    """The work up to an event, and who did it."""

    work: Work
    who: Who


class Causes:
    """The events of a window: the begin and the end of each span, and moments at which ranks meet.

    Attributes:
        doings: The spans.
        times: The time of each event.
        labels: What happened up to each event.
        begin: The begin of the step.
        end: The last event.
        inferred: Pairs of an event and a cause that was inferred.
        places: Of events at which a place becomes free, how many there are.
        is_flow: Whether trajectories of other steps ran at the same time as those that the step took.

    Args:
        folded: The spans, by clocks that agree.
        phase: The phase that is explained, if it is not the whole step.
        slack: How far the clocks of different processes may still differ, in nanoseconds.
        most: How many trajectories each process runs at once at most.
    """

    def __init__(self, folded: Folded, phase: str, slack: int, most: Mapping[Who, int]) -> None:
        window = folded.window
        self.doings, self._slack = folded.doings, slack
        spans = len(self.doings)
        self.times = [window.since]
        self.labels = [Label(NOTHING, NOBODY)]
        for doing in self.doings:
            self.times += (doing.began, doing.ended)
            self.labels += (Label(NOTHING, doing.who), Label(doing.work, doing.who))
        self._lanes: dict[Who, int] = {}
        self._parents = [self._lane(one.who) if one.parent < 0 else one.parent for one in self.doings]
        self._put_inside()
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for n in sorted(range(spans), key=lambda n: (self.doings[n].ended, self.doings[n].began, n)):
            self._children[self._parents[n]].append(n)
        self._ends = {parent: [self.doings[n].ended for n in those] for parent, those in self._children.items()}
        self._order = {n: place for those in self._children.values() for place, n in enumerate(those)}
        for n, parent in enumerate(self._parents):
            if parent < spans:
                self.labels[begin(n)] = self.labels[end(parent)]
        self._instead: dict[int, list[int]] = {}
        self.places: dict[int, int] = {}
        self._put_in_places(most)
        self._further: defaultdict[int, list[int]] = defaultdict(list)
        self.inferred: set[tuple[int, int]] = set()
        trainer = self._of_trainer()
        self.begin = self._first(window)
        self.end = self._last(window, trainer, phase)
        groups = self._groups(trainer)
        self._meet(groups)
        self._take(folded, trainer, groups)
        self._await(trainer)

    def trajectory_at(self, event: int) -> int:
        """Return the place of the trajectory that an event is the end of; -1 if it is none."""
        span, is_end = divmod(event - 1, 2)
        is_one = 0 <= span < len(self.doings) and self.doings[span].work.kind == "trajectory"
        return span if is_one and is_end else -1

    def before(self, event: int) -> Sequence[int]:
        """Return the events that an event waited for; none for the begin of the window."""
        if event == START:
            return ()
        if event in self.places:
            return self._instead[event]
        time, others = self.times[event], self._further.get(event, ())
        found = self._instead.get(event)
        if found is None:
            span, is_end = divmod(event - 1, 2)
            found = self._inside(span) if is_end else self._earlier(span)
        known = [one for one in found if self.times[one] <= time]
        known += (one for one in others if self.times[one] <= time + self._slack)
        return known or (START,)

    def cause(self, event: int, before: Sequence[int], times: Sequence[int]) -> int:
        """Return which of the events before an event let it come: the last one, or the one that made a place free."""
        places = self.places.get(event, 1)
        if places == 1:
            return max(before, key=times.__getitem__)
        return sorted(before, key=times.__getitem__)[-places]

    def _inside(self, span: int) -> list[int]:
        """Return what the end of a span waited for: what ended inside of it."""
        found = self._children.get(span, ())
        last = bisect_right(self._ends.get(span, ()), self.doings[span].ended)
        return [end(one) for one in found[:last]] or [begin(span)]

    def _earlier(self, span: int) -> list[int]:
        """Return what the begin of a span waited for: what ended before on its lane, or inside of the same span."""
        parent = self._parents[span]
        siblings, began = self._children[parent], self.doings[span].began
        place = min(bisect_right(self._ends[parent], began), self._order[span]) - 1
        if place < 0:
            return self._around(span)
        latest = siblings[place]
        found = [end(latest)]
        first = max(0, place - _MOST_SIBLINGS)
        while place > first and self.doings[siblings[place - 1]].ended > self.doings[latest].began:
            place -= 1
            found.append(end(siblings[place]))
        return found

    def _around(self, span: int) -> list[int]:
        """Return the begin of the span that a span is inside of, if there is one."""
        parent = self._parents[span]
        return [begin(parent)] if parent < len(self.doings) else []

    def _lane(self, who: Who) -> int:
        return self._lanes.setdefault(who, len(self.doings) + len(self._lanes))

    def _put_inside(self) -> None:
        """Put trajectories into the span of their own process that they are inside of, as in a trainer that samples."""
        own: defaultdict[Who, list[int]] = defaultdict(list)
        for n, one in enumerate(self.doings):
            if one.parent < 0 or one.work.kind == "phase":
                own[one.who].append(n)
        for those in own.values():
            around: list[int] = []
            for n in sorted(those, key=self._outermost):
                one = self.doings[n]
                while around and self.doings[around[-1]].ended <= one.began:
                    around.pop()
                if one.work.kind != "trajectory":
                    around.append(n)
                elif one.parent < 0:
                    outer = (out for out in reversed(around) if self.doings[out].ended >= one.ended)
                    self._parents[n] = next(outer, self._parents[n])

    def _outermost(self, span: int) -> tuple[int, int, bool]:
        """Return what orders spans so that one comes before those inside of it."""
        one = self.doings[span]
        return one.began, -one.ended, one.work.kind == "trajectory"

    def _put_in_places(self, most: Mapping[Who, int]) -> None:
        """Let a trajectory wait for a place, if others of its process are running: each begins when one has ended.

        A process with `n` places begins the next trajectory when all but `n - 1` of those that began before it have
        ended. While it has places, a trajectory waits for none.
        """
        of_parent: defaultdict[int, list[int]] = defaultdict(list)
        for n, one in enumerate(self.doings):
            if one.work.kind == "trajectory":
                of_parent[self._parents[n]].append(n)
        for those in of_parent.values():
            running: list[tuple[int, int]] = []
            ended: deque[int] = deque(maxlen=_MOST_ENDED)
            for n in those:  # in the order of their begins
                while running and running[0][0] <= self.doings[n].began:
                    ended.append(heappop(running)[1])
                if len(running) + 1 < most[self.doings[n].who]:
                    self._instead[begin(n)] = self._around(n)
                elif ended and len(running) < _MOST_PLACES:
                    place = self._event(self.doings[ended[-1]].ended)
                    self.places[place] = len(running) + 1
                    self._instead[place] = [end(one) for one in ended] + [end(one) for _, one in running]
                    self._instead[begin(n)] = [place]
                heappush(running, (self.doings[n].ended, n))

    def _event(self, time: int) -> int:
        """Make an event besides the begins and ends of spans."""
        self.times.append(time)
        self.labels.append(Label(NOTHING, NOBODY))
        return len(self.times) - 1

    def _of_trainer(self) -> Phases:
        """Return the outermost phases of each trainer rank in each step, in their order."""
        found: Phases = defaultdict(list)
        for n, one in enumerate(self.doings):
            if one.who.is_trainer and one.parent == PARENT_IS_STEP:
                found[one.step, one.who.rank].append(n)
        return found

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
        arrivals = {one: list(self.before(one)) for one in events}
        earlier = [max(self.times[one] for one in those) for those in arrivals.values()]
        times = [self.times[one] for one in events]
        spread = max(earlier) - min(earlier)
        apart = max(times) - min(times) - self._slack
        if spread < _LEAST_SPREAD_NS or apart > TOGETHER * spread or max(earlier) > min(times) + self._slack:
            return
        meeting = self._event(min(max(earlier), *times))
        self._instead[meeting] = []
        self._further[meeting] = [one for those in arrivals.values() for one in those]
        self.inferred.update((one, meeting) for one in events)
        self._instead |= {one: [meeting] for one in events}

    def _take(self, folded: Folded, trainer: Phases, groups: Iterable[list[int]]) -> None:
        """Let a rank wait for the trajectories that it took, and the ranks that took none as that one does."""
        same = {n: group for group in groups for n in group}
        takers = {(taken.step, taken.rank) for taken in folded.taken}
        self.is_flow = _is_flow(folded)
        for taken in folded.taken:
            ends = [end(one) for one in taken.trajectories]
            last = max(self.times[one] for one in ends)
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
        syncs, phases = ([n for those in trainer.values() for n in those if self._is(n, kinds)] for kinds in _AWAITED)
        ends = sorted((self.doings[n].ended, end(n)) for n in syncs)
        begins = sorted((self.doings[n].began, n) for n in phases)
        for n, one in enumerate(self.doings):
            if one.who.is_trainer or one.parent >= 0 or one.work.kind not in ("trajectory", "phase"):
                continue
            open_ = [
                n for _, n in begins[: bisect_right(begins, (one.began, _LATEST))] if self.doings[n].ended > one.began
            ]
            around = [outer for outer in open_ if _serves(one, self.doings[outer])]
            asked = [outer for outer in around if not self._is(outer, ("waiting",))]
            if asked:
                self._infer(begin(n), begin(asked[-1]))
            if one.work.kind == "phase":
                for outer in around:
                    if one.ended <= self.doings[outer].ended:
                        self._infer(end(outer), end(n))
            last = bisect_right(ends, (one.began, _LATEST))
            if last and not self._is(n, ("sync",)):
                self._infer(begin(n), ends[last - 1][1])

    def _is(self, span: int, categories: Sequence[str]) -> bool:
        """Return whether a span is a phase of one of the categories."""
        return self.doings[span].work.kind == "phase" and self.doings[span].work.category in categories

    def _infer(self, event: int, cause: int) -> None:
        self._further[event].append(cause)
        self.inferred.add((event, cause))

    def _first(self, window: Window) -> int:
        """Make the event at which the step begins, which waits for the ranks to end the step before."""
        first = self._event(window.began)
        ranks = [lane for who, lane in self._lanes.items() if who.is_trainer]
        before = ((lane, bisect_right(self._ends.get(lane, ()), window.began)) for lane in ranks)
        self._instead[first] = [end(self._children[lane][last - 1]) for lane, last in before if last]
        return first

    def _last(self, window: Window, trainer: Phases, phase: str) -> int:
        """Make the last event, which waits for all ranks; of a phase, for its last end on each rank."""
        last = self._event(window.ended)
        ranks = [those for (step, _), those in trainer.items() if step == window.step]
        named = [end(n) for those in ranks for n in those if not phase or self.doings[n].work.name == phase]
        others = (end(n) for n, one in enumerate(self.doings) if one.step == window.step and one.parent < 0)
        self._instead[last] = named or list(others)
        return last


def begin(span: int) -> int:
    """Return the event at which a span begins."""
    return 2 * span + 1


def end(span: int) -> int:
    """Return the event at which a span ends."""
    return 2 * span + 2


def _is_flow(folded: Folded) -> bool:
    """Return whether another trajectory was running when the last one ended that the step took."""
    mine = {n for taken in folded.taken if taken.step == folded.window.step for n in taken.trajectories}
    last = max((folded.doings[n].ended for n in mine), default=0)
    return any(
        one.work.kind == "trajectory" and one.began < last < one.ended and n not in mine
        for n, one in enumerate(folded.doings)
    )


def _has_taken(one: Doing, last: int, at: int) -> bool:
    """Return whether a phase can have got trajectories, the last of which ended and which were taken at some time."""
    return one.work.category in _TAKES and last <= one.ended <= at


def _serves(one: Doing, outer: Doing) -> bool:
    """Return whether a phase of the trainer can wait for a span of another process."""
    category = outer.work.category
    if one.work.kind == "trajectory":
        return category in _TAKES
    return one.work.kind == "phase" and category in ("waiting", one.work.category)


def in_order(causes: Causes) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the begin and the end of the step, and all that they waited for, each after what it waited for."""
    done: set[int] = set()
    open_: set[int] = set()
    stack: list[tuple[int, Sequence[int], int]] = [(one, causes.before(one), 0) for one in (causes.end, causes.begin)]
    while stack:
        event, before, place = stack.pop()
        if place < len(before):
            stack.append((event, before, place + 1))
            one = before[place]
            if one not in done and one not in open_:
                open_.add(one)
                is_inside = causes.times[one] > causes.times[START]
                stack.append((one, causes.before(one) if is_inside else (), 0))
        else:
            done.add(event)
            yield event, before

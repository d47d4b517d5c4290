"""Events, and what each waited for as it was recorded: in its process, inside of a span, or for a place.

An event is the begin or the end of a span, or a moment at which several meet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.span_work import NOTHING
from otel_rl.look.insight.why.step_spans import SpanProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.look.insight.span_work import SpanWork
    from otel_rl.look.insight.why.folded_spans import FoldedWindow

_MOST_SIBLINGS = 64
"""Spans side by side of which the next one may have waited for each."""
_MOST_PLACES = 128
"""Trajectories that run at once in a process, one of whose places the next one waits for."""
NOBODY = SpanProcess("", -1, "")
START = 0
"""The event before all others: the begin of the window."""


class Label(NamedTuple):
    """The work up to an event, and who did it."""

    work: SpanWork
    who: SpanProcess


class RecordedCauses:
    """The begin and the end of each span, and what each waited for in its process or inside of its parent.

    Attributes:
        doings: The spans.
        times: The time of each event.
        labels: What happened up to each event.
        places: Events at which one of several places becomes free.

    Args:
        folded: The spans, by clocks that agree.
        slack: How far the clocks of different processes may still differ, in nanoseconds.
        most: How many trajectories each process runs at once at most.
    """

    def __init__(self, folded: FoldedWindow, slack: int, most: Mapping[SpanProcess, int]) -> None:
        self.doings, self._slack = folded.doings, slack
        spans = len(self.doings)
        self.times = [folded.window.since]
        self.labels = [Label(NOTHING, NOBODY)]
        for doing in self.doings:
            self.times += (doing.began, doing.ended)
            self.labels += (Label(NOTHING, doing.who), Label(doing.work, doing.who))
        self._lanes: dict[SpanProcess, int] = {}
        self._parents = [self._lane(doing.who) if doing.parent < 0 else doing.parent for doing in self.doings]
        self._put_inside()
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for n in sorted(range(spans), key=lambda n: (self.doings[n].ended, self.doings[n].began, n)):
            self._children[self._parents[n]].append(n)
        self._ends = {parent: [self.doings[n].ended for n in children] for parent, children in self._children.items()}
        self._order = {n: place for children in self._children.values() for place, n in enumerate(children)}
        for n, parent in enumerate(self._parents):
            if parent < spans:
                self.labels[begin(n)] = self.labels[end(parent)]
        self._instead: dict[int, list[int]] = {}
        self._further: defaultdict[int, list[int]] = defaultdict(list)
        self.places: set[int] = set()
        self._put_in_places(most)

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
        events = self._instead.get(event)
        if events is None:
            span, is_end = divmod(event - 1, 2)
            events = self._inside(span) if is_end else self._earlier(span)
        known = [earlier for earlier in events if self.times[earlier] <= time]
        known += (other for other in others if self.times[other] <= time + self._slack)
        return known or (START,)

    def cause(self, event: int, before: Sequence[int], times: Sequence[int]) -> int:
        """Return which of the events before an event let it come: the last one, or the one that made a place free."""
        return (min if event in self.places else max)(before, key=times.__getitem__)

    def _inside(self, span: int) -> list[int]:
        """Return what the end of a span waited for: what ended inside of it."""
        children = self._children.get(span, ())
        last = bisect_right(self._ends.get(span, ()), self.doings[span].ended)
        return [end(child) for child in children[:last]] or [begin(span)]

    def _earlier(self, span: int) -> list[int]:
        """Return what the begin of a span waited for: what ended before on its lane, or inside of the same span."""
        parent = self._parents[span]
        siblings, began = self._children[parent], self.doings[span].began
        place = min(bisect_right(self._ends[parent], began), self._order[span]) - 1
        if place < 0:
            return self._around(span)
        latest = siblings[place]
        ends = [end(latest)]
        first = max(0, place - _MOST_SIBLINGS)
        while place > first and self.doings[siblings[place - 1]].ended > self.doings[latest].began:
            place -= 1
            ends.append(end(siblings[place]))
        return ends

    def _around(self, span: int) -> list[int]:
        """Return the begin of the span that a span is inside of, if there is one."""
        parent = self._parents[span]
        return [begin(parent)] if parent < len(self.doings) else []

    def _lane(self, who: SpanProcess) -> int:
        return self._lanes.setdefault(who, len(self.doings) + len(self._lanes))

    def _put_inside(self) -> None:
        """Put trajectories into the span of their own process that they are inside of, as in a trainer that samples."""
        own: defaultdict[SpanProcess, list[int]] = defaultdict(list)
        for n, doing in enumerate(self.doings):
            if doing.parent < 0 or doing.work.kind == "phase":
                own[doing.who].append(n)
        for places in own.values():
            around: list[int] = []
            for n in sorted(places, key=self._outermost):
                doing = self.doings[n]
                while around and self.doings[around[-1]].ended <= doing.began:
                    around.pop()
                if doing.work.kind != "trajectory":
                    around.append(n)
                elif doing.parent < 0:
                    outer = (out for out in reversed(around) if self.doings[out].ended >= doing.ended)
                    self._parents[n] = next(outer, self._parents[n])

    def _outermost(self, span: int) -> tuple[int, int, bool]:
        """Return what orders spans so that one comes before those inside of it."""
        doing = self.doings[span]
        return doing.began, -doing.ended, doing.work.kind == "trajectory"

    def _put_in_places(self, most: Mapping[SpanProcess, int]) -> None:
        """Let a trajectory wait for a place, if others of its process are running: each begins when one has ended.

        The one that ended last had the place; if another one of those that were running had ended before, it would have
        been the place of that one. While a process has places, a trajectory waits for none.
        """
        of_parent: defaultdict[int, list[int]] = defaultdict(list)
        for n, doing in enumerate(self.doings):
            if doing.work.kind == "trajectory":
                of_parent[self._parents[n]].append(n)
        for places in of_parent.values():
            running: list[tuple[int, int]] = []
            last = -1
            for n in places:  # in the order of their begins
                while running and running[0][0] <= self.doings[n].began:
                    last = heappop(running)[1]
                if len(running) + 1 < most[self.doings[n].who]:
                    self._instead[begin(n)] = self._around(n)
                elif last >= 0 and len(running) < _MOST_PLACES:
                    place = self._event(self.times[last])
                    self.places.add(place)
                    self._instead[place] = [last, *[other for _, other in running]]
                    self._instead[begin(n)] = [place]
                heappush(running, (self.doings[n].ended, end(n)))

    def _event(self, time: int) -> int:
        """Make an event besides the begins and ends of spans."""
        self.times.append(time)
        self.labels.append(Label(NOTHING, NOBODY))
        return len(self.times) - 1


def begin(span: int) -> int:
    """Return the event at which a span begins."""
    return 2 * span + 1


def end(span: int) -> int:
    """Return the event at which a span ends."""
    return 2 * span + 2

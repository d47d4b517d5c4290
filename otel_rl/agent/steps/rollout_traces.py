"""Buffers traces that belong to no step until a step trains on them, and exports them within a budget of spans.

Rollout workers produce many more spans than anybody wants to keep. The trajectories to keep are known only when they
are consumed: the slowest, the failed and those with extreme rewards, then a random part, within the budget.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.analysis.goodput import ROLLOUTS
from otel_rl.export import Span
from otel_rl.journal.segments import START, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SLOWEST, _EXTREME = 10, 5
_PATIENCE_NS = 60 * 1_000_000_000
_WAIT_NS = 15 * 60 * 1_000_000_000
_MOST_SPANS = 200_000
_REMEMBERED = 100_000
_GRACE_NS = 10 * 1_000_000_000
_LOOK_NS = 1_000_000_000
_ENDLESS = 1 << 62


class SpanBudget(msgspec.Struct):
    """The number of spans that may still leave with a step."""

    spans: int


_UNDECIDED = SpanBudget(0)


class _Trace(msgspec.Struct):
    place: Position  # the batch in the outbox with its first span
    since: int  # when its first span came, or its root ended
    spans: list[Span] = []
    root: Span | None = None

    @property
    def seconds(self) -> float:
        return 0.0 if self.root is None else (self.root.end_unix_nano - self.root.start_unix_nano) / 1e9

    @property
    def is_step(self) -> bool:
        return self.root is not None and self.root.name == semconv.SPAN_LOOP

    @property
    def is_rollout(self) -> bool:
        return self.root is not None and self.root.name in ROLLOUTS

    @property
    def failed(self) -> bool:
        return any(span.error is not None for span in self.spans)


class RolloutTraces:
    """A buffer for the spans of traces that do not belong to a step, and of steps while their trajectories are chosen.

    A trace whose root is neither a rollout nor a trajectory is sampled when its root has ended, or after 60 s if the
    root is in another system. A rollout that no step references is sampled after 15 minutes, as part of the last step.

    Args:
        is_within: Returns whether a trace is within the sampling ratio.
        budget: How many spans may leave with each step.

    Attributes:
        left_out: How many spans were not kept.
        fresh: Buffered spans that are not in the outbox yet.
        settled: Decided traces whose decision is not in the outbox yet; the value says whether they were kept.
    """

    def __init__(self, is_within: Callable[[str], bool], budget: int) -> None:
        self._is_within, self._budget = is_within, budget
        self._spare = SpanBudget(budget)
        self._held: OrderedDict[str, _Trace] = OrderedDict()
        self._count = 0
        self._looked_at = 0
        self._expected: dict[str, None] = {}
        self._decided: OrderedDict[str, SpanBudget | None] = OrderedDict()
        self.left_out = 0
        self.fresh: list[Span] = []
        self.settled: dict[str, bool] = {}
        self._finished: list[tuple[Span, bool]] = []

    @property
    def since(self) -> Position | None:
        """The place in the outbox of the oldest buffered span."""
        return next((trace.place for trace in self._held.values()), None)

    def take_finished(self) -> list[tuple[Span, bool]]:
        """Return the trajectories that were decided on since the last call, and whether their traces were kept."""
        finished, self._finished = self._finished, []
        return finished

    def saved(self) -> None:
        """Record that all buffered spans are in the outbox."""
        self.fresh, self.settled = [], {}

    def restore(self, spans: Iterable[Span], settled: Iterable[tuple[str, bool]], place: Position, now: int) -> None:
        """Restore the spans that an earlier agent buffered, batch by batch."""
        for span in spans:
            self._hold(span, place, now)
        for trace_id, kept in settled:
            self._remember(trace_id, SpanBudget(self._budget) if kept else None)
            if (trace := self._held.pop(trace_id, None)) is not None:
                self._count -= len(trace.spans)

    def expect(self, trace_ids: Iterable[str]) -> None:
        """Record the traces of rollouts that have begun."""
        self._expected |= dict.fromkeys(trace_ids)

    def take(self, spans: Iterable[Span], place: Position, now: int) -> list[Span]:
        """Add spans; return those that leave at once."""
        leaving: list[Span] = []
        for span in spans:
            if span.trace_id in self._decided:
                leaving += self._late(span)
                continue
            self._hold(span, place, now)
            self.fresh.append(span)
            if not span.parent_id and span.name not in ROLLOUTS and span.trace_id not in self._expected:
                leaving += self._settle_by_ratio(span.trace_id)
        return leaving

    def take_step(self, spans: list[Span], root: Span, place: Position, now: int, *, kept: bool) -> list[Span]:
        """Add the spans of a step; return those that leave at once.

        A step that consumed trajectories waits 10 s: inference servers send their spans every few seconds.
        """
        consumed = _consumed(root)
        if kept and consumed:
            for span in spans:
                self._hold(span, place, now)
            self.fresh += spans
            return []
        if (early := self._held.get(root.trace_id)) is not None:
            spans = [*early.spans, *spans]
            self._settle(root.trace_id, SpanBudget(_ENDLESS) if kept else None)
        for trace_id in consumed:
            if trace_id not in self._decided:
                self._drop(trace_id)
        self.left_out += 0 if kept else len(spans)
        return spans if kept else []

    def expire(self, now: int, *, all_of_it: bool = False) -> list[Span]:
        """Return the kept spans of traces that have waited long enough; with `all_of_it`, of all traces."""
        leaving: list[Span] = []
        if not all_of_it and now < self._looked_at + _LOOK_NS and self._count <= _MOST_SPANS:
            return leaving
        self._looked_at = now
        for trace_id, trace in list(self._held.items()):
            if trace.is_step and (all_of_it or now - trace.since > _GRACE_NS):
                leaving += self._with_consumed(trace_id)
        for trace_id, trace in list(self._held.items()):
            if all_of_it or self._count > _MOST_SPANS or self._has_waited(trace_id, trace, now):
                leaving += self._settle_without_step(trace_id, trace)
        return leaving

    def _with_consumed(self, step: str) -> list[Span]:
        """Return the spans of a step, and of the trajectories that it consumed, within the budget."""
        spans = self._held[step].spans
        root = next(span for span in spans if span.name == semconv.SPAN_LOOP and not span.parent_id)
        consumed = _consumed(root)
        self._spare = room = SpanBudget(max(0, self._budget - len(spans)))
        self._settle(step, SpanBudget(_ENDLESS))
        leaving: list[Span] = []
        for trace_id in self._by_worth(consumed):
            leaving += self._keep(trace_id, room)
        for trace_id in consumed:
            if trace_id not in self._decided:
                self._drop(trace_id)
        links = tuple(link for link in root.links if link.trace_id not in consumed or self._decided.get(link.trace_id))
        return [*leaving, *(replace(root, links=links) if span is root else span for span in spans)]

    def _has_waited(self, trace_id: str, trace: _Trace, now: int) -> bool:
        if trace.is_step:
            return False
        if trace_id in self._expected or trace.is_rollout:
            return trace.root is not None and now - trace.since > _WAIT_NS
        return now - trace.since > _PATIENCE_NS

    def _settle_without_step(self, trace_id: str, trace: _Trace) -> list[Span]:
        if trace_id not in self._expected and not trace.is_rollout:
            return self._settle_by_ratio(trace_id)
        if trace.failed or self._is_within(trace_id):
            return self._keep(trace_id, self._spare) or self._drop(trace_id)
        return self._drop(trace_id)

    def _hold(self, span: Span, place: Position, now: int) -> None:
        trace = self._held.get(span.trace_id)
        if trace is None:
            trace = self._held[span.trace_id] = _Trace(place, now)
        trace.spans.append(span)
        self._count += 1
        if not span.parent_id:
            trace.root, trace.since = span, now

    def _late(self, span: Span) -> list[Span]:
        """Return the span if there is room for it with its trace."""
        room = self._decided[span.trace_id]
        if room is None or room.spans <= 0:
            self.left_out += 1
            return []
        room.spans -= 1
        return [span]

    def _settle_by_ratio(self, trace_id: str) -> list[Span]:
        return self._keep(trace_id, SpanBudget(_ENDLESS)) if self._is_within(trace_id) else self._drop(trace_id)

    def _by_worth(self, consumed: Iterable[str]) -> Iterator[str]:
        """Yield traces in the order in which they use the budget."""
        here: dict[str, _Trace] = {
            trace_id: self._held.get(trace_id, _NOT_YET)
            for trace_id in consumed
            if trace_id in self._held or trace_id in self._expected
        }
        ordered = sorted(here, key=lambda trace_id: -here[trace_id].seconds)
        known = {trace_id: reward for trace_id, trace in here.items() if (reward := _reward(trace)) is not None}
        rewards = sorted(known, key=lambda trace_id: known[trace_id])
        extreme = [*rewards[:_EXTREME], *rewards[-_EXTREME:]]
        failed = [trace_id for trace_id in ordered if here[trace_id].failed]
        yield from dict.fromkeys((*ordered[:_SLOWEST], *extreme, *failed, *sorted(here, key=_low_bits)))

    def _keep(self, trace_id: str, room: SpanBudget) -> list[Span]:
        """Return the spans of a trace, and of those that it links to; nothing if there is no room for all of them."""
        wanted = self._with_linked(trace_id)
        spans = [span for one in wanted if one in self._held for span in self._held[one].spans]
        if len(spans) > room.spans:
            return []
        room.spans -= len(spans)
        for one in wanted:
            self._settle(one, room)
        return [self._without_dead_links(span) for span in spans]

    def _with_linked(self, trace_id: str) -> list[str]:
        """Return the trace and all undecided rollouts that are reachable from it by links."""
        found = [trace_id]
        for one in found:
            for span in self._held[one].spans if one in self._held else ():
                found += [
                    link.trace_id
                    for link in span.links
                    if link.trace_id not in found
                    and link.trace_id not in self._decided
                    and (link.trace_id in self._held or link.trace_id in self._expected)
                ]
        return found

    def _without_dead_links(self, span: Span) -> Span:
        alive = tuple(link for link in span.links if self._decided.get(link.trace_id, _UNDECIDED) is not None)
        return span if len(alive) == len(span.links) else replace(span, links=alive)

    def _drop(self, trace_id: str) -> list[Span]:
        self.left_out += len(self._held[trace_id].spans) if trace_id in self._held else 0
        self._settle(trace_id, None)
        return []

    def _settle(self, trace_id: str, room: SpanBudget | None) -> None:
        trace = self._held.pop(trace_id, None)
        self._expected.pop(trace_id, None)
        if trace is not None:
            self._count -= len(trace.spans)
            if trace.root is not None and trace.root.name == semconv.SPAN_TRAJECTORY:
                self._finished.append((trace.root, room is not None))
        self.settled[trace_id] = room is not None
        self._remember(trace_id, room)

    def _remember(self, trace_id: str, room: SpanBudget | None) -> None:
        self._decided[trace_id] = room
        while len(self._decided) > _REMEMBERED:
            self._decided.popitem(last=False)


_NOT_YET = _Trace(START, 0)


def _consumed(root: Span) -> list[str]:
    """Return the traces of the trajectories that a step consumed."""
    return [link.trace_id for link in root.links if semconv.TRAJECTORY_OUTCOME in link.attributes]


def _reward(trace: _Trace) -> float | None:
    reward = None if trace.root is None else trace.root.attributes.get(semconv.TRAJECTORY_REWARD)
    return float(reward) if isinstance(reward, (int, float)) else None


def _low_bits(trace_id: str) -> str:
    return trace_id[16:]

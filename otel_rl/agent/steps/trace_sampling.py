"""Trace sampling for steps: a share of all traces, and every trace of an unusual step."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.agent.steps.rollout_traces import RolloutTraces
from otel_rl.export import Span
from otel_rl.journal.segments import START

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item
    from otel_rl.journal.segments import Position

_LOW_64_BITS = (1 << 64) - 1
_KNOWN_STEPS = 50
_LEAST_STEPS = 10
_SLOW = 1.5  # times the median of the steps before
_REMEMBERED = 1000
_RARE_PHASES = frozenset(
    {"evaluate", "evaluation", "eval", "validation", "validate", "save_checkpoint", "checkpoint", "do_checkpoint"}
)


class TraceSampler:
    """A sampler that keeps or drops whole steps, with the spans of all ranks of the machine.

    A step is kept if it is within the ratio, if anything in it failed on any rank, if it took 1.5 times the median of
    the 50 steps before it, or if it contains an evaluation or a checkpoint. Instruments see every step. The
    trajectories that a step consumed are kept with it, within its budget of spans.

    Args:
        ratio: The share of steps to keep, decided by the trace id as in OpenTelemetry's `traceidratio`, so that
            inference servers with the same ratio keep the same traces.
        canonical: Returns the canonical name of a phase for the trainer's name.
        budget: Maximum number of spans that leave with a step; its own spans count, but always leave.
    """

    def __init__(self, ratio: float, canonical: Callable[[str], str], budget: int) -> None:
        self._bound = round(ratio * (1 << 64))
        self._canonical = canonical
        self._seconds: deque[float] = deque(maxlen=_KNOWN_STEPS)
        self._decided: dict[str, bool] = {}
        self._left_out = 0
        self.rollouts = RolloutTraces(self._is_within, budget)

    @property
    def left_out(self) -> int:
        """How many spans were not kept."""
        return self._left_out + self.rollouts.left_out

    def of(self, items: Sequence[Item], place: Position = START, now: int = 0) -> list[Item]:
        """Return the items that leave at `now`, in Unix nanoseconds; the spans of a step come in one call.

        `place` is the place in the outbox where the spans that are buffered now will be saved.
        """
        steps: dict[str, list[Span]] = {}
        for item in items:
            if isinstance(item, Span):
                steps.setdefault(item.trace_id, []).append(item)
        roots = {span.trace_id: span for spans in steps.values() for span in spans if span.name == semconv.SPAN_LOOP}
        for root in roots.values():
            self._decide(root.trace_id, steps[root.trace_id], (root.end_unix_nano - root.start_unix_nano) / 1e9)
        foreign = [item for item in items if isinstance(item, Span) and item.trace_id not in self._decided]
        leaving: list[Item] = [item for item in items if not isinstance(item, Span)]
        leaving += self.rollouts.take(foreign, place, now)
        for trace_id, spans in steps.items():
            if trace_id not in self._decided:
                continue
            kept = self._decided[trace_id]
            if trace_id in roots:
                leaving += self.rollouts.take_step(spans, roots[trace_id], place, now, kept=kept)
            elif kept:
                leaving += spans
            else:
                self._left_out += len(spans)
        return leaving

    def expire(self, now: int, *, all_of_it: bool = False) -> list[Span]:
        """Return the kept spans of traces that no step references."""
        return self.rollouts.expire(now, all_of_it=all_of_it)

    def keeps(self, trace_id: str) -> bool:
        """Return whether a step's trace is certainly kept: it was decided, or it is within the ratio."""
        return self._decided.get(trace_id, self._is_within(trace_id))

    def _decide(self, trace_id: str, spans: Sequence[Span], seconds: float) -> None:
        slow = len(self._seconds) >= _LEAST_STEPS and seconds > _SLOW * median(self._seconds)
        self._seconds.append(seconds)
        if len(self._decided) >= _REMEMBERED:
            del self._decided[next(iter(self._decided))]
        self._decided[trace_id] = self._is_within(trace_id) or slow or any(map(self._is_worth_it, spans))

    def _is_within(self, trace_id: str) -> bool:
        return (int(trace_id, 16) & _LOW_64_BITS) < self._bound

    def _is_worth_it(self, span: Span) -> bool:
        phase = span.attributes.get(semconv.PHASE)
        rare = isinstance(phase, str) and (phase in _RARE_PHASES or self._canonical(phase) in _RARE_PHASES)
        return rare or span.error is not None

"""Which steps' traces leave: a share of all, and every one that is worth a look."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.export import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item

_LOW_64_BITS = (1 << 64) - 1
_KNOWN_STEPS = 50
_LEAST_STEPS = 10
_SLOW = 1.5  # times the median of the steps before
_REMEMBERED = 1000
_RARE_PHASES = frozenset(
    {"evaluate", "evaluation", "eval", "validation", "validate", "save_checkpoint", "checkpoint", "do_checkpoint"}
)


class TraceSampler:
    """Decides for whole steps, over all ranks of the machine: half a trace tells nothing.

    A step is kept if it falls within the ratio; if anything in it failed on any rank; if it took 1.5 times the median
    of the fifty before it; if there is an evaluation or a checkpoint in it. Instruments see every step.

    Args:
        ratio: Which share is kept anyway; by the trace id as OpenTelemetry's `traceidratio` does it, so that
            inference servers with the same ratio keep the same ones.
        canonical: Returns what a phase is called here that the trainer calls by a name.

    Attributes:
        left_out: How many spans were not kept.
    """

    def __init__(self, ratio: float, canonical: Callable[[str], str]) -> None:
        self._bound = round(ratio * (1 << 64))
        self._canonical = canonical
        self._seconds: deque[float] = deque(maxlen=_KNOWN_STEPS)
        self._decided: dict[str, bool] = {}
        self.left_out = 0

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Return the items without the spans of steps that are not kept; a step's spans come together."""
        if self._bound >= 1 << 64:
            return list(items)
        steps: dict[str, list[Span]] = {}
        for item in items:
            if isinstance(item, Span):
                steps.setdefault(item.trace_id, []).append(item)
        for trace_id, spans in steps.items():
            roots = [span for span in spans if span.name == semconv.SPAN_LOOP]
            if roots:
                self._decide(trace_id, spans, (roots[0].end_unix_nano - roots[0].start_unix_nano) / 1e9)
        kept = [item for item in items if not isinstance(item, Span) or self._keeps(item.trace_id)]
        self.left_out += len(items) - len(kept)
        return kept

    def _decide(self, trace_id: str, spans: Sequence[Span], seconds: float) -> None:
        slow = len(self._seconds) >= _LEAST_STEPS and seconds > _SLOW * median(self._seconds)
        self._seconds.append(seconds)
        if len(self._decided) >= _REMEMBERED:
            del self._decided[next(iter(self._decided))]
        self._decided[trace_id] = self._is_within(trace_id) or slow or any(map(self._is_worth_it, spans))

    def _keeps(self, trace_id: str) -> bool:
        """Return what was decided for the step; what comes late, or belongs to none, counts by the ratio."""
        decided = self._decided.get(trace_id)
        return self._is_within(trace_id) if decided is None else decided

    def _is_within(self, trace_id: str) -> bool:
        return (int(trace_id, 16) & _LOW_64_BITS) < self._bound

    def _is_worth_it(self, span: Span) -> bool:
        phase = span.attributes.get(semconv.PHASE)
        rare = isinstance(phase, str) and (phase in _RARE_PHASES or self._canonical(phase) in _RARE_PHASES)
        return rare or span.error is not None

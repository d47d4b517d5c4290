"""Trace sampling: a share of all traces, which a budget lowers outside of steps, and every unusual step."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Span, Trajectory
from otel_rl.recorder.convert.gen_ai_messages import without_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item

_KNOWN_STEPS = 50
_LEAST_STEPS = 10
_SLOW = 1.5  # times the median of the steps before
_REMEMBERED = 1000
_RARE_PHASES = frozenset(
    {"evaluate", "evaluation", "eval", "validation", "validate", "save_checkpoint", "checkpoint", "do_checkpoint"}
)
_MINUTE_NS = 60 * 1_000_000_000
_LESS_LOAD = 0.9
"""Factor of the load that is expected after a minute with fewer spans: trajectories may end once in a few minutes."""


class TraceBudget:
    """Lowers the share of traces that leave, if they have more spans in a minute than the budget allows.

    Nothing is remembered of a trace that has not failed. The share changes slowly, so the spans of one trace mostly
    leave together or not at all, and the traces with the lowest ids always do. While the load grows n-fold within a
    minute, about 1 + ln(n) times the budget leaves.

    Args:
        ratio: The share of the traces that leave if the budget allows it, decided by the trace id.
        spans: Spans per minute. Failed traces may have as many in addition, from their first error on.
    """

    def __init__(self, ratio: float, spans: int) -> None:
        self._ratio, self._spans = round(ratio * (1 << 64)), spans
        self._bound = self._ratio if spans else 0
        self._until = 0
        self._load = self._expected = self._of_failed = 0
        self._failed: dict[str, None] = {}

    def is_within(self, trace_id: str) -> bool:
        """Return whether a trace is within the ratio."""
        return _bits(trace_id) < self._ratio

    def admits(self, span: Span, now: int) -> bool:
        """Return whether a span leaves at `now`, in Unix nanoseconds."""
        if now >= self._until:
            self._until = now + _MINUTE_NS
            self._expected = max(self._load, round(_LESS_LOAD * self._expected))
            self._load = self._of_failed = 0
        place = _bits(span.trace_id)
        self._load += place < self._ratio
        # By the larger of both loads: at the start of a minute nothing is counted yet, and all traces would leave.
        self._bound = self._ratio * self._spans // max(self._load, self._expected, self._spans, 1)
        return place < self._bound or self._has_failed(span)

    def expects(self, trace_id: str) -> bool:
        """Return whether the next span of a trace leaves, if the load stays as it is."""
        return _bits(trace_id) < self._bound or trace_id in self._failed

    def _has_failed(self, span: Span) -> bool:
        """Return whether this span or an earlier one of its trace has an error, and there is room for it."""
        if self._of_failed >= self._spans or (span.error is None and span.trace_id not in self._failed):
            return False
        if span.trace_id not in self._failed and len(self._failed) >= _REMEMBERED:
            del self._failed[next(iter(self._failed))]
        self._failed[span.trace_id] = None
        self._of_failed += 1
        return True


def _bits(trace_id: str) -> int:
    """Return the random bits of a trace id, by which OpenTelemetry's `traceidratio` decides too."""
    return int(trace_id[16:], 16)


class TraceSampler:
    """A sampler that decides on each span when it arrives; it marks those that it leaves out, or drops them.

    A step is kept or left out as a whole, with the spans of all ranks of the machine. It is kept if it is within the
    ratio, if anything in it failed on any rank, if it took 1.5 times the median of the 50 steps before it, or if it
    contains an evaluation or a checkpoint. Spans of other traces, and those of a step that arrive before its root, are
    kept within the ratio and the budget. Instruments see everything. A trajectory is marked if its trace was left out.

    Args:
        ratio: The share of traces to keep, decided by the trace id as in OpenTelemetry's `traceidratio`, so that
            inference servers with the same ratio keep the same traces.
        canonical: Returns the canonical name of a phase for the trainer's name.
        budget: Spans per minute that leave outside of steps.
        marks: If true, spans that are left out are returned with `sampled` false, for exporters with `everything`.

    Attributes:
        left_out: How many spans were left out.
    """

    def __init__(self, ratio: float, canonical: Callable[[str], str], budget: int, *, marks: bool = False) -> None:
        self._canonical, self._marks = canonical, marks
        self._budget = TraceBudget(ratio, budget)
        self._seconds: deque[float] = deque(maxlen=_KNOWN_STEPS)
        self._decided: dict[str, bool] = {}
        self.left_out = 0

    def of(self, items: Sequence[Item], now: int = 0) -> list[Item]:
        """Return the items that leave at `now`, in Unix nanoseconds; the spans of a step come in one call."""
        self._decide_steps([item for item in items if isinstance(item, Span)])
        leaving: list[Item] = []
        for item in items:
            if not isinstance(item, Span):
                is_left_out = isinstance(item, Trajectory) and not (item.trace_id and self.keeps(item.trace_id))
                leaving.append(replace(item, sampled=False) if is_left_out else item)
                continue
            kept = self._is_kept(item, now)
            self.left_out += not kept
            if kept or self._marks:
                leaving.append(self._marked(item, kept=kept))
        return leaving

    def keeps(self, trace_id: str) -> bool:
        """Return whether a trace is kept, as far as it is known now."""
        decided = self._decided.get(trace_id)
        return self._budget.expects(trace_id) if decided is None else decided

    def _is_kept(self, span: Span, now: int) -> bool:
        decided = self._decided.get(span.trace_id)
        return self._budget.admits(span, now) if decided is None else decided

    def _decide_steps(self, spans: Sequence[Span]) -> None:
        """Decide on the steps whose roots are among the spans."""
        roots = {span.trace_id: span for span in spans if span.name == semconv.SPAN_LOOP}
        steps: dict[str, list[Span]] = {trace_id: [] for trace_id in roots}
        for span in spans if roots else ():
            if span.trace_id in steps:
                steps[span.trace_id].append(span)
        for trace_id, root in roots.items():
            seconds = (root.end_unix_nano - root.start_unix_nano) / 1e9
            slow = len(self._seconds) >= _LEAST_STEPS and seconds > _SLOW * median(self._seconds)
            self._seconds.append(seconds)
            if len(self._decided) >= _REMEMBERED:
                del self._decided[next(iter(self._decided))]
            is_within = self._budget.is_within(trace_id)
            self._decided[trace_id] = is_within or slow or any(map(self._is_worth_it, steps[trace_id]))

    def _marked(self, span: Span, *, kept: bool) -> Span:
        """Return the span with its mark; the root of a step links only to trajectories that are kept.

        A step can have 10,000 links, and those to traces that were left out lead to nothing.
        """
        links = span.links
        if span.name == semconv.SPAN_LOOP:
            links = tuple(
                link for link in links if semconv.TRAJECTORY_OUTCOME not in link.attributes or self.keeps(link.trace_id)
            )
        if kept and len(links) == len(span.links):
            return span
        attributes = span.attributes if kept else without_messages(span)
        return replace(span, sampled=kept, links=links, attributes=attributes)

    def _is_worth_it(self, span: Span) -> bool:
        phase = span.attributes.get(semconv.PHASE)
        rare = isinstance(phase, str) and (phase in _RARE_PHASES or self._canonical(phase) in _RARE_PHASES)
        return rare or span.error is not None

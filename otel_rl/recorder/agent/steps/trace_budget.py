"""Chooses spans of traces outside of steps, such as trajectories, by a share that a budget per minute lowers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.export import Span

_MINUTE_NS = 60 * 1_000_000_000
_LESS_LOAD = 0.9
"""Factor of the load that is expected after a minute with fewer spans: trajectories may end once in a few minutes."""
_REMEMBERED = 1000


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

"""Names of spans that mean something to the reducer and to analyses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl import semconv

if TYPE_CHECKING:
    from otel_rl.recorder.journal.records import SpanStarted

ROLLOUTS = (semconv.SPAN_ROLLOUT, semconv.SPAN_TRAJECTORY)
"""Roots of traces that wait for a step."""


def is_rollout(span: SpanStarted) -> bool:
    """Return whether a span is the root of a trace that waits for a step."""
    return span.name in ROLLOUTS and not span.parent_id and span.kind is not None

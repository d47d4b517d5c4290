"""Exemplars: the traces that data points of histograms refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

if TYPE_CHECKING:
    from otel_rl.export import Span


def context(span: Span, *, kept: bool) -> Context:
    """Return a context from which the SDK makes an exemplar, if the span is kept."""
    flags = TraceFlags(TraceFlags.SAMPLED if kept else TraceFlags.DEFAULT)
    ids = SpanContext(int(span.trace_id, 16), int(span.span_id, 16), is_remote=False, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(ids), Context())

"""Trace context propagation: to a subprocess, an HTTP server, a Ray actor."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.interrupts import detach, let_pass
from otel_rl.recorder.journal.ids import SpanIds, format_traceparent, parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def carrier() -> dict[str, str]:
    """Return the current span as W3C trace context, which can be sent as HTTP headers; empty if there is none."""
    span = trace.get_current_span().get_span_context()
    return {"traceparent": format_traceparent(SpanIds(span.trace_id, span.span_id))} if span.is_valid else {}


@contextmanager
def attach(carrier: Mapping[str, str]) -> Iterator[None]:
    """Make the span in a carrier the parent of the phases inside the `with` block.

    Args:
        carrier: A mapping with `traceparent` in any case, such as HTTP headers or `os.environ`. Without a valid
            `traceparent` nothing changes.
    """
    ids = _ids_in(carrier)
    if ids is None:
        yield
        return
    remote = SpanContext(ids.trace_id, ids.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    before, token = context.get_current(), None
    try:
        token = context.attach(trace.set_span_in_context(NonRecordingSpan(remote)))
        yield
    finally:
        if token is not None:
            detach(token)
        elif context.get_current() is not before:  # an interrupt came before the token did
            context.attach(before)


def _ids_in(carrier: Mapping[str, str]) -> SpanIds | None:
    try:
        traceparent = next((text for key, text in carrier.items() if text_of(key).lower() == "traceparent"), "")
    except Exception as error:  # not a mapping
        let_pass(error)
        return None
    return parse_traceparent(text_of(traceparent))

"""A run among other users of OpenTelemetry."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from otel_rl import Run
from otel_rl.recorder.journal.ids import step_ids
from tests.recorder.trainer.reading import RecordsOf, begin, ended, kinds, started


def test_third_party_span(recording: Run, records_of: RecordsOf) -> None:
    """A span that is made through `run.tracer_provider` is the phase's child, and journaled as it is."""
    tracer = recording.tracer_provider.get_tracer("httpx")
    linked = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))
    with recording.step(0), recording.phase("reward"):
        with tracer.start_as_current_span(
            "POST", kind=SpanKind.CLIENT, attributes={"url": "x"}, links=[Link(linked)]
        ) as span:
            with recording.phase("inside"):
                pass
            span.set_attribute("status", 200)
        tracer.start_span("quick", start_time=5).end(end_time=7)
    records = records_of(recording)
    spans = started(records)
    post, end = spans["POST"], ended(records, "POST")

    assert (post.parent_id, post.trace_id) == (spans["reward"].span_id, spans["reward"].trace_id)
    assert (post.step, post.kind, post.memory) == (0, SpanKind.CLIENT.value, b"")
    assert end.attributes == {"otel.scope.name": "httpx", "url": "x", "status": 200}
    assert end.links == [(linked.trace_id.to_bytes(16, "big"), linked.span_id)]
    assert spans["inside"].parent_id == post.span_id
    assert (spans["quick"].time, ended(records, "quick").time) == (5, 7)
    assert spans["quick"].parent_id == spans["reward"].span_id


def test_third_party_exception(recording: Run, records_of: RecordsOf) -> None:
    """An exception in such a span is recorded as OpenTelemetry does, and passes."""
    tracer = recording.tracer_provider.get_tracer("httpx")
    with pytest.raises(OSError, match="reset"), tracer.start_as_current_span("POST"):
        raise OSError("reset")
    end = ended(records_of(recording), "POST")

    assert end.error is not None
    assert "reset" in end.error[1]
    assert [name for name, _, _ in end.events or []] == ["exception"]


def test_foreign_sdk(recording: Run) -> None:
    """Spans of somebody else's SDK that start inside a phase are its children, in its trace, and sampled."""
    tracer = TracerProvider().get_tracer("vllm")
    with recording.step(0):
        in_step = tracer.start_span("in step")
        with recording.phase("generate") as phase:
            in_phase = tracer.start_span("in phase")
    outside = tracer.start_span("outside")
    here, ids = phase.get_span_context(), step_ids(recording.id, 0, 0)

    assert (in_phase.parent.trace_id, in_phase.parent.span_id) == (here.trace_id, here.span_id)  # type: ignore[attr-defined]
    assert (in_step.parent.trace_id, in_step.parent.span_id) == (ids.trace_id, ids.span_id)  # type: ignore[attr-defined]
    assert in_phase.is_recording()
    assert outside.parent is None  # type: ignore[attr-defined]


def test_inside_a_foreign_span(recording: Run, records_of: RecordsOf) -> None:
    """A phase inside a span of somebody else's SDK is its child."""
    with TracerProvider().get_tracer("ray").start_as_current_span("task") as span, recording.phase("generate"):
        pass
    there = span.get_span_context()
    phase = started(records_of(recording))["generate"]

    assert (there.trace_id, there.span_id) == (int.from_bytes(phase.trace_id, "big"), phase.parent_id)


@pytest.mark.parametrize("text", ["true", "TRUE", " True ", "1"])
def test_sdk_disabled(tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """With `OTEL_SDK_DISABLED=true`, and with no other value, no span is recorded; values are always."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", text)
    run = begin(tmp_path)
    with run.step(0), run.phase("generate") as phase, run.tracer_provider.get_tracer("x").start_as_current_span("y"):
        phase.set_attribute("a", 1)
        run.log({"loss": 1.0})
        is_recording = phase.is_recording()
    records = kinds(records_of(run))

    assert is_recording is (text == "1")
    assert records.count("SpanStarted") == records.count("SpanEnded") == (2 if text == "1" else 0)
    assert [kind for kind in records if "Span" not in kind] == ["Started", "StepStarted", "Logged", "StepEnded"]

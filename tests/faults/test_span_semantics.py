"""What OpenTelemetry says about spans, from the trainer's call to what a collector gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from otel_rl import Run
from otel_rl.export import Span
from otel_rl.recorder.journal.records import Record
from otel_rl.recorder.settings.otel_environment import limits
from otel_rl_exporters.otlp import readable_spans
from tests.recorder.agent.reducing import feed, reducing

RecordsOf = Callable[..., list[Record]]

LINKED = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))


class Broken(RuntimeError):
    """A type of a module."""


def sent(run: Run, records_of: RecordsOf) -> dict[str, ReadableSpan]:
    """Return the spans of a run that has ended, by name, as the OTLP exporter sends them."""
    run.finish(0)
    items = feed(reducing(), "rank0", *records_of(run))
    spans = [item for item in items if isinstance(item, Span)]
    return {span.name: span for _, span in readable_spans(spans, Resource.create(), limits({}))}


def test_the_type_of_an_error_has_its_module(recording: Run, records_of: RecordsOf) -> None:
    """On the phase, on the root of the step, and in the exception's event."""
    with pytest.raises(Broken), recording.step(0), recording.phase("work"):
        raise Broken("it broke")
    spans = sent(recording, records_of)
    name = f"{__name__}.Broken"

    for span in (spans["work"], spans["rl.loop"]):
        assert (span.attributes or {})["error.type"] == name
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, f"{name}: it broke")
    assert (spans["work"].events[0].attributes or {})["exception.type"] == name


def test_builtin_errors_have_none(recording: Run, records_of: RecordsOf) -> None:
    """As OpenTelemetry's SDK has it."""
    with pytest.raises(OSError, match="reset"), recording.step(0):
        raise ConnectionResetError("reset")

    assert (sent(recording, records_of)["rl.loop"].attributes or {})["error.type"] == "ConnectionResetError"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], (StatusCode.UNSET, None)),
        ([StatusCode.UNSET], (StatusCode.UNSET, None)),
        ([StatusCode.OK], (StatusCode.OK, None)),
        ([Status(StatusCode.ERROR, "slow"), StatusCode.UNSET], (StatusCode.ERROR, "slow")),
        ([Status(StatusCode.ERROR, "slow"), Status(StatusCode.ERROR, "late")], (StatusCode.ERROR, "late")),
        ([Status(StatusCode.ERROR, "slow"), StatusCode.OK], (StatusCode.OK, None)),
        ([StatusCode.OK, Status(StatusCode.ERROR, "slow")], (StatusCode.OK, None)),
    ],
)
def test_the_status_is_as_specified(recording: Run, records_of: RecordsOf, told: list[Any], expected: object) -> None:
    """OK is final, nothing is unset again, and the last description of an error is kept; for steps and phases."""
    with recording.step(0) as step, recording.phase("work") as phase:
        for status in told:
            step.set_status(status)
            phase.set_status(status)
    spans = sent(recording, records_of)

    for span in (spans["work"], spans["rl.loop"]):
        assert (span.status.status_code, span.status.description) == expected


def test_ok_is_final_for_exceptions_too(recording: Run, records_of: RecordsOf) -> None:
    """An exception that passes afterwards is an event, and changes the status no more."""
    phase = recording.phase("work")
    phase.set_status(StatusCode.OK)
    with pytest.raises(Broken), recording.step(0), phase:
        raise Broken
    work = sent(recording, records_of)["work"]

    assert (work.status.status_code, [event.name for event in work.events]) == (StatusCode.OK, ["exception"])


def test_the_scope_of_a_third_party_travels(recording: Run, records_of: RecordsOf) -> None:
    """Its tracer's name and version are the instrumentation scope; phases have otel-rl's."""
    with recording.step(0), recording.phase("work"):
        recording.tracer_provider.get_tracer("opentelemetry.instrumentation.httpx", "0.60b1").start_span("POST").end()
        recording.tracer_provider.get_tracer("nameless").start_span("GET").end()
    spans = sent(recording, records_of)
    scopes = {name: span.instrumentation_scope for name, span in spans.items()}

    assert {name: (scope.name, scope.version) for name, scope in scopes.items() if scope} == {
        "POST": ("opentelemetry.instrumentation.httpx", "0.60b1"),
        "GET": ("nameless", None),
        "work": ("otel_rl", None),
        "rl.loop": ("otel_rl", None),
    }


def test_attributes_of_links_travel(recording: Run, records_of: RecordsOf) -> None:
    """Each link has its own, of spans, phases and steps."""
    tracer = recording.tracer_provider.get_tracer("httpx")
    with recording.step(0) as step, recording.phase("work") as phase:
        tracer.start_span("POST", links=[Link(LINKED), Link(LINKED, {"n": 2})]).end()
        phase.add_link(LINKED, {"n": 1})
        phase.add_link(LINKED)
        step.add_link(LINKED, {"of": "step"})
    spans = sent(recording, records_of)
    found = {name: [dict(link.attributes or {}) for link in span.links] for name, span in spans.items()}

    assert found == {"POST": [{}, {"n": 2}], "work": [{"n": 1}, {}], "rl.loop": [{"of": "step"}]}
    assert {link.context.span_id for span in spans.values() for link in span.links} == {LINKED.span_id}


def test_no_span_ends_before_it_starts(recording: Run, records_of: RecordsOf) -> None:
    """Whatever third parties say; what they say of the start is kept."""
    tracer = recording.tracer_provider.get_tracer("httpx")
    with recording.step(0):
        tracer.start_span("back", start_time=2_000).end(end_time=1_000)
        tracer.start_span("future", start_time=1 << 61).end()
        tracer.start_span("fine", start_time=5).end(end_time=7)
    spans = sent(recording, records_of)

    assert {name: (span.start_time, span.end_time) for name, span in spans.items() if name != "rl.loop"} == {
        "back": (2_000, 2_000),
        "future": (1 << 61, 1 << 61),
        "fine": (5, 7),
    }

"""Carriers: a trace goes on in another process."""

from __future__ import annotations

import pytest
from opentelemetry import context

import otel_rl
from otel_rl import Run
from otel_rl.recorder.journal.ids import SpanIds, format_traceparent, step_ids
from otel_rl.recorder.journal.records import Record
from tests.processes import run_python
from tests.recorder.trainer.reading import RecordsOf, started

REMOTE = SpanIds(0xABC, 0xDEF)
CARRIED = {"traceparent": format_traceparent(REMOTE)}


def parent(records: list[Record], name: str) -> SpanIds:
    span = started(records)[name]
    return SpanIds(int.from_bytes(span.trace_id, "big"), span.parent_id)


def test_a_carrier_names_what_is_open(recording: Run, records_of: RecordsOf) -> None:
    """The innermost phase, otherwise the step; outside of both it is empty."""
    with recording.step(3):
        in_step = otel_rl.carrier()
        with recording.phase("outer"), recording.phase("inner"):
            in_phase = otel_rl.carrier()
    inner = started(records_of(recording))["inner"]

    assert in_step == {"traceparent": format_traceparent(step_ids(recording.id, 0, 3))}
    assert in_phase == {
        "traceparent": format_traceparent(SpanIds(int.from_bytes(inner.trace_id, "big"), inner.span_id))
    }
    assert otel_rl.carrier() == {}


def test_carrier_without_a_run() -> None:
    """Without a run the carrier is empty."""
    assert otel_rl.carrier() == {}


def test_another_process_joins_the_run(recording: Run, records_of: RecordsOf) -> None:
    """Under the span that was current where its environment was made, with a journal of its own."""
    script = """
import otel_rl
run = otel_rl.init(role="reward", agent="off", exporters=[], quiet=True)
with run.phase("score"):
    pass
run.finish(0)
print(run.dir)
"""
    with recording.step(3), recording.phase("reward") as phase:
        printed = run_python(script, recording.dir, **recording.environment())
        here = phase.get_span_context()

    assert printed == f"{recording.dir}\n"
    assert parent(records_of(recording, "reward"), "score") == (here.trace_id, here.span_id)


@pytest.mark.parametrize("key", ["traceparent", "TRACEPARENT", "Traceparent"])
def test_attach(recording: Run, records_of: RecordsOf, key: str) -> None:
    """Phases inside `attach` are children of the span that the carrier names, in whatever case its key is."""
    with otel_rl.attach({"other": "x", key: format_traceparent(REMOTE)}), recording.phase("reward"):
        pass

    assert parent(records_of(recording), "reward") == REMOTE


def test_attach_in_a_step(recording: Run, records_of: RecordsOf) -> None:
    """The carrier is current and the parent inside `attach`, and the step is behind it."""
    with recording.step(0):
        with otel_rl.attach(CARRIED):
            handed_on = otel_rl.carrier()
            with recording.phase("inside"):
                pass
        with recording.phase("behind"):
            pass
    records = records_of(recording)

    assert handed_on == CARRIED
    assert parent(records, "inside") == REMOTE
    assert parent(records, "behind") == step_ids(recording.id, 0, 0)


@pytest.mark.parametrize("carried", [{}, {"traceparent": "garbage"}, {"traceparent": ""}, {"tracestate": "a=b"}])
def test_attach_nothing(recording: Run, records_of: RecordsOf, carried: dict[str, str]) -> None:
    """A carrier without a valid `traceparent` changes nothing."""
    with recording.step(0), otel_rl.attach(carried), recording.phase("reward"):
        pass

    assert parent(records_of(recording), "reward") == step_ids(recording.id, 0, 0)


def test_exception_in_attach(recording: Run) -> None:
    """An exception passes `attach` unchanged and leaves nothing attached."""
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, otel_rl.attach(CARRIED):
        raise error

    assert error is caught.value
    assert context.get_current() == {}

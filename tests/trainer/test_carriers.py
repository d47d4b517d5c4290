"""Carriers: a trace goes on in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import context

import otel_rl
from otel_rl.journal.ids import SpanIds, format_traceparent, parse_traceparent, step_ids
from otel_rl.journal.records import Record, SpanStarted
from tests.processes import run_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl import Run

    RecordsOf = Callable[[Run], list[Record]]

REMOTE = SpanIds(0xABC, 0xDEF)


def spans(records: list[Record]) -> dict[str, SpanStarted]:
    return {record.name: record for record in records if isinstance(record, SpanStarted)}


def parent(span: SpanStarted) -> SpanIds:
    return SpanIds(int.from_bytes(span.trace_id, "big"), span.parent_id)


def test_carrier_in_a_phase(recording: Run, records_of: RecordsOf) -> None:
    """Inside a phase the carrier names that phase."""
    with recording.step(0), recording.phase("outer"), recording.phase("inner"):
        carried = otel_rl.carrier()
    inner = spans(records_of(recording))["inner"]

    assert SpanIds(int.from_bytes(inner.trace_id, "big"), inner.span_id) == parse_traceparent(carried["traceparent"])


def test_carrier_in_a_step(recording: Run) -> None:
    """Inside a step the carrier names the step."""
    with recording.step(3):
        carried = otel_rl.carrier()

    assert {"traceparent": format_traceparent(step_ids(recording.id, 0, 3))} == carried


def test_carrier_outside(recording: Run) -> None:
    """Outside of everything the carrier is empty."""
    with recording.step(0), recording.phase("generate"):
        pass

    assert otel_rl.carrier() == {}


def test_carrier_without_a_run() -> None:
    """Without a run the carrier is empty."""
    assert otel_rl.carrier() == {}


def test_another_process_joins_the_run(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
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
    (score,) = [record for record in records_of(recording, "reward") if isinstance(record, SpanStarted)]

    assert printed == f"{recording.dir}\n"
    assert (int.from_bytes(score.trace_id, "big"), score.parent_id) == (here.trace_id, here.span_id)


@pytest.mark.parametrize("key", ["traceparent", "TRACEPARENT", "Traceparent"])
def test_attach(recording: Run, records_of: RecordsOf, key: str) -> None:
    """Phases inside `attach` are children of the span that the carrier names, in whatever case its key is."""
    with otel_rl.attach({"other": "x", key: format_traceparent(REMOTE)}), recording.phase("reward"):
        pass

    assert parent(spans(records_of(recording))["reward"]) == REMOTE


def test_attach_inside_a_step(recording: Run, records_of: RecordsOf) -> None:
    """An attached carrier is the parent, also if a step is open."""
    with recording.step(0), otel_rl.attach({"traceparent": format_traceparent(REMOTE)}), recording.phase("reward"):
        pass

    assert parent(spans(records_of(recording))["reward"]) == REMOTE


def test_after_attach(recording: Run, records_of: RecordsOf) -> None:
    """Behind `attach` everything is as it was before."""
    with recording.step(0):
        with otel_rl.attach({"traceparent": format_traceparent(REMOTE)}):
            pass
        with recording.phase("reward"):
            pass

    assert step_ids(recording.id, 0, 0) == parent(spans(records_of(recording))["reward"])


def test_attach_hands_on(recording: Run) -> None:
    """The attached carrier is current until a phase begins."""
    carried = {"traceparent": format_traceparent(REMOTE)}
    with otel_rl.attach(carried):
        assert carried == otel_rl.carrier()


@pytest.mark.parametrize("carried", [{}, {"traceparent": "garbage"}, {"traceparent": ""}, {"tracestate": "a=b"}])
def test_attach_nothing(recording: Run, records_of: RecordsOf, carried: dict[str, str]) -> None:
    """A carrier without a valid `traceparent` changes nothing."""
    with recording.step(0), otel_rl.attach(carried), recording.phase("reward"):
        pass

    assert step_ids(recording.id, 0, 0) == parent(spans(records_of(recording))["reward"])


def test_exception_in_attach(recording: Run) -> None:
    """An exception passes `attach` unchanged and leaves nothing attached."""
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, otel_rl.attach({"traceparent": format_traceparent(REMOTE)}):
        raise error

    assert error is caught.value
    assert context.get_current() == {}


_CHILD = """
import os, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", role="reward", id=os.environ["RUN"], dir=".")
with otel_rl.attach(os.environ), run.phase("score"):
    pass
run.finish(0)
"""


def test_subprocess(recording: Run, records_of: Callable[..., list[Record]], tmp_path: Path) -> None:
    """A subprocess that gets the carrier in its environment goes on in the same trace."""
    with recording.step(0), recording.phase("reward"):
        carried = {key.upper(): value for key, value in otel_rl.carrier().items()}
        run_python(_CHILD, tmp_path, RUN=recording.id, **carried)
    score = spans(records_of(recording, "reward"))["score"]
    reward = spans(records_of(recording))["reward"]

    assert SpanIds(step_ids(recording.id, 0, 0).trace_id, reward.span_id) == parent(score)

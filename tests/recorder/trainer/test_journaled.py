"""The records that each call of a run writes to the journal."""

from __future__ import annotations

import asyncio
import contextlib
import math
import mmap
import os
import re
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from opentelemetry import context
from opentelemetry.trace import SpanContext, Status, StatusCode

from otel_rl import Run
from otel_rl.recorder.devices.host_memory import PAGE_SIZE, parse_snapshot
from otel_rl.recorder.journal.ids import step_ids
from otel_rl.recorder.journal.records import Configured, Happened, Started, StepEnded, StepStarted
from tests.recorder.trainer.reading import RecordsOf, begin, ended, kinds, logged, started


def test_started(tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record says who records: run, attempt, rank, sizes, role, process, host, page size, time."""
    before = time.time_ns()
    monkeypatch.setenv("OTEL_RL_LOCAL_WORLD_SIZE", "2")
    run = begin(tmp_path, id="run-7", rank=1, world_size=4, role="driver")
    (first,) = records_of(run, "driver1")

    assert isinstance(first, Started)
    assert (first.run_id, first.attempt, first.rank, first.world_size) == ("run-7", 0, 1, 4)
    assert (first.local_world_size, first.role) == (2, "driver")
    assert (first.pid, first.host, first.page_size) == (os.getpid(), os.uname().nodename, PAGE_SIZE)
    assert before <= first.time <= time.time_ns()


def test_order(recording: Run, records_of: RecordsOf) -> None:
    """Records lie in the order of the calls, and each is there when its call returns."""
    with recording.step(0):
        with recording.phase("generate"):
            recording.event("sampled")
        recording.log({"loss": 1.0})

        assert kinds(records_of(recording))[1:] == ["StepStarted", "SpanStarted", "Happened", "SpanEnded", "Logged"]

    recording.params({"lr": 1})
    recording.finish()

    assert kinds(records_of(recording))[6:] == ["StepEnded", "Configured", "Finished"]


def test_step(recording: Run, records_of: RecordsOf) -> None:
    """A step is its number, its times, its attributes, and the process's memory at both ends."""
    before = time.time_ns()
    with recording.step(3, epoch=1, kind="warm-up"):
        pass
    _, start, end = records_of(recording)

    assert isinstance(start, StepStarted)
    assert isinstance(end, StepEnded)
    assert start.step == end.step == 3
    assert before <= start.time <= end.time <= time.time_ns()
    assert end.attributes == {"epoch": 1, "kind": "warm-up"}
    assert end.error is end.events is end.links is None
    for snapshot in (start.memory, end.memory):
        memory = parse_snapshot(snapshot, PAGE_SIZE)

        assert memory is not None
        assert 1 << 20 < memory.resident <= memory.virtual


def test_phase(recording: Run, records_of: RecordsOf) -> None:
    """A phase is a span of its step, with attributes, and the process's memory at both ends."""
    with recording.step(3), recording.phase("generate", tokens=512) as phase:
        phase.set_attribute("engine", "vllm")
    records = records_of(recording)
    start, end = started(records)["generate"], ended(records, "generate")
    ids = step_ids(recording.id, 0, 3)

    assert (start.step, start.parent_id, int.from_bytes(start.trace_id, "big")) == (3, ids.span_id, ids.trace_id)
    assert start.kind is None
    assert end.attributes == {"tokens": 512, "engine": "vllm"}
    assert start.time <= end.time
    assert parse_snapshot(start.memory, PAGE_SIZE)
    assert parse_snapshot(end.memory, PAGE_SIZE)


def test_memory_of_a_phase(recording: Run, records_of: RecordsOf) -> None:
    """The memory that a phase allocates and keeps is the difference of its snapshots."""
    with recording.step(0), recording.phase("load"):
        kept = mmap.mmap(-1, 64 << 20)  # of the kernel's: an array may lie in what an earlier one left behind
        for page in range(0, len(kept), mmap.PAGESIZE):
            kept[page] = 1
    records = records_of(recording)
    before = parse_snapshot(started(records)["load"].memory, PAGE_SIZE)
    after = parse_snapshot(ended(records, "load").memory, PAGE_SIZE)

    assert before is not None
    assert after is not None
    assert abs(after.resident - before.resident - len(kept)) < 8 << 20  # the kernel's own counters are not exact


def test_nested_phases(recording: Run, records_of: RecordsOf) -> None:
    """A phase in a phase is its child, and the next one is again a child of the step."""
    with recording.step(0):
        with recording.phase("outer"), recording.phase("inner"):
            pass
        with recording.phase("next"):
            pass
    spans = started(records_of(recording))

    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["next"].parent_id == spans["outer"].parent_id == step_ids(recording.id, 0, 0).span_id


def test_phase_outside(recording: Run, records_of: RecordsOf) -> None:
    """A phase outside of steps is the root of a trace of its own."""
    with recording.phase("setup"):
        pass
    with recording.phase("warm-up"):
        pass
    spans = started(records_of(recording))

    assert [(span.step, span.parent_id) for span in spans.values()] == [(None, 0)] * 2
    assert spans["setup"].trace_id != spans["warm-up"].trace_id


def test_span_details(recording: Run, records_of: RecordsOf) -> None:
    """Events, links, a status and a new name of a phase are kept."""
    linked = SpanContext(0xABC, 0xDEF, is_remote=True)
    with recording.phase("old") as phase:
        phase.add_event("sampled", {"count": 3}, timestamp=7)
        phase.add_link(linked)
        phase.set_status(Status(StatusCode.ERROR, "too long"))
        phase.update_name("new")
    end = ended(records_of(recording), "old")

    assert end.events == [("sampled", 7, {"count": 3})]
    assert end.links == [(linked.trace_id.to_bytes(16, "big"), linked.span_id)]
    assert end.error == ("", "too long")
    assert end.name == "new"


def test_attributes(recording: Run, records_of: RecordsOf) -> None:
    """Attributes are what OpenTelemetry allows: scalars become numbers, other things texts, `None` is left out."""
    given = {"a": np.float32(0.5), "b": [1, "x"], "c": ("y",), "d": None, "e": {"k": 1}, "f": True, "g": math.inf}
    with recording.phase("generate", **given):
        pass
    expected = {"a": 0.5, "b": [1, "x"], "c": ["y"], "e": "{'k': 1}", "f": True, "g": math.inf}

    assert expected == ended(records_of(recording), "generate").attributes


def test_exception(recording: Run, records_of: RecordsOf) -> None:
    """An exception passes unchanged, and step and phase say which one it was."""
    error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError) as caught, recording.step(0), recording.phase("update_actor"):
        raise error
    records = records_of(recording)
    phase = ended(records, "update_actor")
    (step,) = (record for record in records if isinstance(record, StepEnded))

    assert error is caught.value
    assert error.__cause__ is error.__context__ is None
    assert phase.error == step.error == ("RuntimeError", "out of memory")
    for end in (phase, step):
        assert end.events is not None
        ((name, _, attributes),) = end.events

        assert name == "exception"
        assert attributes["exception.type"] == "RuntimeError"
        assert attributes["exception.message"] == "out of memory"
        assert "test_exception" in str(attributes["exception.stacktrace"])


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit"),
        (asyncio.CancelledError(), "asyncio.exceptions.CancelledError"),
    ],
)
def test_interruption(recording: Run, records_of: RecordsOf, error: BaseException, name: str) -> None:
    """Interruptions pass unchanged too, and end the phase."""
    with pytest.raises(type(error)) as caught, recording.step(0), recording.phase("generate"):
        raise error
    end = ended(records_of(recording), "generate")

    assert error is caught.value
    assert end.error is not None
    assert end.error[0] == name


def test_a_generator_that_is_closed_in_another_task(
    recording: Run, records_of: RecordsOf, caplog: pytest.LogCaptureFixture
) -> None:
    """Its phase ends, as one that a thread closes, and nobody reports a context that cannot be restored."""

    async def batches() -> AsyncGenerator[int, None]:
        with recording.phase("load"):
            yield 1

    def samples() -> Generator[int, None, None]:
        with recording.phase("sample"):
            yield 1

    async def close_elsewhere() -> None:
        found = batches()
        await anext(found)
        await asyncio.gather(found.aclose())

    with recording.step(0):
        asyncio.run(close_elsewhere())
        sampling = samples()
        next(sampling)
        thread = Thread(target=sampling.close)
        thread.start()
        thread.join()

    assert [ended(records_of(recording), name).error for name in ("load", "sample")] == [None, None]
    assert caplog.records == []


class Mute(Exception):
    """Raises instead of giving its text."""

    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("error", [Mute(), ValueError("file \udcff")], ids=["mute", "not Unicode"])
def test_exception_without_a_text(recording: Run, records_of: RecordsOf, error: Exception) -> None:
    """An exception whose text raises, or is not valid Unicode, passes unchanged, and is recorded by its type."""
    with pytest.raises(type(error)), recording.phase("generate"):
        raise error
    found = ended(records_of(recording), "generate").error

    assert found is not None
    assert found[0].endswith(type(error).__name__)


def test_after_an_exception(recording: Run, records_of: RecordsOf) -> None:
    """Behind a step that failed the next one begins as usual."""
    with contextlib.suppress(ValueError), recording.step(0), recording.phase("generate"):
        raise ValueError
    with recording.step(1), recording.phase("reward"):
        pass

    assert context.get_current() == {}
    assert started(records_of(recording))["reward"].parent_id == step_ids(recording.id, 0, 1).span_id


def test_event(recording: Run, records_of: RecordsOf) -> None:
    """An event names the step and the span that it happened in."""
    recording.event("before")
    with recording.step(4), recording.phase("checkpoint"):
        recording.event("rl.checkpoint", path="ckpt-4", bytes=7, none=None)
    records = records_of(recording)
    before, inside = (record for record in records if isinstance(record, Happened))
    span = started(records)["checkpoint"]

    assert (before.step, before.trace_id, before.span_id) == (None, b"", 0)
    assert (inside.name, inside.attributes) == ("rl.checkpoint", {"path": "ckpt-4", "bytes": 7})
    assert (inside.step, inside.trace_id, inside.span_id) == (4, span.trace_id, span.span_id)


def test_config(tmp_path: Path, records_of: RecordsOf) -> None:
    """`config` of `init` is the first thing behind the start; hyper-parameters are flat, and without secrets."""
    run = begin(tmp_path, config={"lr": 0.1})
    run.params({"optimizer": {"lr": 1e-6}, "api_key": "hunter2"})
    _, *found = records_of(run)

    assert [record.values for record in found if isinstance(record, Configured)] == [
        {"lr": 0.1},
        {"optimizer.lr": 1e-6, "api_key": "[redacted]"},
    ]


def test_log(recording: Run, records_of: RecordsOf) -> None:
    """Values belong to the step that is open, else to the one that is named, else to the last one."""
    with recording.step(0):
        recording.log({"a": 1})
        recording.log({"b": 2}, step=5)
        recording.log({"c": 3})
    recording.log({"d": 4})
    recording.log({"e": 5}, step=7)
    recording.log({"f": 6})

    expected = [(0, {"a": 1}), (5, {"b": 2}), (0, {"c": 3}), (0, {"d": 4}), (7, {"e": 5}), (7, {"f": 6})]
    assert expected == logged(records_of(recording))


def test_log_without_steps(recording: Run, records_of: RecordsOf) -> None:
    """Values can be logged by their step alone, in any order."""
    for step in (3, 1, np.int64(2)):
        recording.log({"loss": 0.5}, step=step)

    assert logged(records_of(recording)) == [(3, {"loss": 0.5}), (1, {"loss": 0.5}), (2, {"loss": 0.5})]


def test_values_are_copied(recording: Run, records_of: RecordsOf) -> None:
    """A mapping that changes after the call changes nothing that was logged."""
    values = {"loss": 1.0}
    recording.log(values, step=0)
    values["loss"] = 2.0

    assert logged(records_of(recording)) == [(0, {"loss": 1.0})]


def test_ten_thousand_steps(recording: Run, records_of: RecordsOf) -> None:
    """10,000 steps come back complete, in order and exact."""
    for step in range(10_000):
        with recording.step(step), recording.phase("update_actor"):
            recording.log({"loss": step / 3, "tokens": step * 2**40})
    records = records_of(recording)

    assert kinds(records)[1:] == ["StepStarted", "SpanStarted", "Logged", "SpanEnded", "StepEnded"] * 10_000
    assert [(step, {"loss": step / 3, "tokens": step * 2**40}) for step in range(10_000)] == logged(records)


def test_names_of_phases_with_secrets(tmp_path: Path, records_of: RecordsOf) -> None:
    """Secrets in the names of phases are removed, in too long ones too, and two such names stay different."""
    tokens = ["ghp_" + "aB3" * 12, "ghp_" + "xY9" * 12]
    run = begin(tmp_path)
    with run.step(0):
        for token in tokens:
            with run.phase(f"load {token}"), run.phase(f"load {token} {'x' * 5000}"):
                pass

    text = repr(records_of(run))
    names = set(re.findall(r"load \[redacted\]-[0-9a-f]{6}", text))
    assert not [token for token in tokens if token in text]
    assert len(names) == 2

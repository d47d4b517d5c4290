"""A run: what each call leaves in the journal, and that no call ever raises."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from opentelemetry import context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

import otel_rl
from otel_rl.ids import step_ids
from otel_rl.memory import PAGE_SIZE, parse_snapshot
from otel_rl.records import (
    Configured,
    Finished,
    Happened,
    Logged,
    Record,
    Refusals,
    SpanEnded,
    SpanStarted,
    Started,
    StepEnded,
    StepStarted,
)
from otel_rl.settings import SettingsError
from tests.processes import run_python, start_python

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from otel_rl import Run

    RecordsOf = Callable[..., list[Record]]


class NeedsAPackage:
    """An exporter whose package nobody has."""

    requires: ClassVar = ("no_such_package",)
    extra: ClassVar = "wishes"

    def __init__(self, run: object, *, color: str = "red") -> None:
        raise AssertionError("it must not be built in the trainer")


class NeedsAPartOfAPackage(NeedsAPackage):
    """An exporter that needs a module in a package that nobody has."""

    requires: ClassVar = ("no_such_package.part",)


class Colorful:
    """An exporter with an option."""

    def __init__(self, run: object, *, color: str = "red") -> None:
        raise AssertionError("it must not be built in the trainer")


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]


def started(records: list[Record]) -> dict[str, SpanStarted]:
    return {record.name: record for record in records if isinstance(record, SpanStarted)}


def ended(records: list[Record], name: str) -> SpanEnded:
    span_id = started(records)[name].span_id
    (end,) = (record for record in records if isinstance(record, SpanEnded) and record.span_id == span_id)
    return end


def logged(records: list[Record]) -> list[tuple[int, dict[str, int | float]]]:
    return [(record.step, record.values) for record in records if isinstance(record, Logged)]


def refusals(records: list[Record]) -> dict[str, int]:
    return [record.counts for record in records if isinstance(record, Refusals)][-1]


def begin(place: Path, **keywords: object) -> Run:
    return otel_rl.init(**{"agent": "off", "exporters": [], "quiet": True, "project": "test", "dir": place} | keywords)  # type: ignore[arg-type]


# What is journaled


def test_started(tmp_path: Path, records_of: RecordsOf) -> None:
    """The first record says who records: run, attempt, rank, sizes, role, process, host, page size, time."""
    before = time.time_ns()
    run = begin(tmp_path, id="run-7", rank=1, world_size=4, local_world_size=2, role="driver")
    (first,) = records_of(run, "driver")

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
    """What a phase allocates and keeps is the difference of its snapshots."""
    with recording.step(0), recording.phase("load"):
        kept = np.ones(64 << 20, np.uint8)
    records = records_of(recording)
    before = parse_snapshot(started(records)["load"].memory, PAGE_SIZE)
    after = parse_snapshot(ended(records, "load").memory, PAGE_SIZE)

    assert before is not None
    assert after is not None
    assert abs(after.resident - before.resident - kept.nbytes) < 8 << 20  # the kernel's own counters are not exact


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
def test_interruption(recording: Run, records_of: RecordsOf, error: BaseException) -> None:
    """Interruptions pass unchanged too, and end the phase."""
    with pytest.raises(type(error)) as caught, recording.step(0), recording.phase("generate"):
        raise error
    end = ended(records_of(recording), "generate")

    assert error is caught.value
    assert end.error is not None
    assert end.error[0] == type(error).__qualname__


def test_exception_without_a_text(recording: Run, records_of: RecordsOf) -> None:
    """An exception whose own text raises passes unchanged, and is told by its type."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    with pytest.raises(Mute), recording.phase("generate"):
        raise Mute
    error = ended(records_of(recording), "generate").error

    assert error is not None
    assert error[0].endswith("Mute")


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


def test_params(recording: Run, records_of: RecordsOf) -> None:
    """Hyper-parameters are flat, and without secrets."""
    recording.params({"optimizer": {"lr": 1e-6}, "api_key": "hunter2"})
    *_, record = records_of(recording)

    assert isinstance(record, Configured)
    assert record.values == {"optimizer.lr": 1e-6, "api_key": "[redacted]"}


def test_config(tmp_path: Path, records_of: RecordsOf) -> None:
    """`config` of `init` is the first thing behind the start."""
    _, record = records_of(begin(tmp_path, config={"lr": 0.1}))

    assert isinstance(record, Configured)
    assert record.values == {"lr": 0.1}


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


# What is refused


def step_twice(run: Run) -> None:
    with run.step(1):
        pass
    with run.step(1):
        pass


def step_back(run: Run) -> None:
    with run.step(1):
        pass
    with run.step(0):
        pass


def step_in_step(run: Run) -> None:
    with run.step(0), run.step(1):
        pass


def step_once(run: Run, number: object) -> None:
    with run.step(number):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("call", "reason", "text"),
    [
        (step_twice, "step", "step 1 after step 1"),
        (step_back, "step", "step 0 after step 1"),
        (step_in_step, "step", "step 1 inside step 0"),
        (lambda run: step_once(run, -1), "step", "step -1 after step -1; steps count up from 0"),
        (lambda run: step_once(run, 1.0), "step", "step 1.0 is no integer"),
        (lambda run: step_once(run, "1"), "step", "step '1' is no integer"),
        (lambda run: step_once(run, None), "step", "step None is no integer"),
        (lambda run: run.log({"loss": 1.0}), "step", "log() at step None; use `with run.step(n)`, or pass step=n"),
        (lambda run: run.log({"loss": 1.0}, step=-1), "step", "log() at step -1"),
        (lambda run: run.log({"loss": 1.0}, step=1.5), "log", "log: 'float' object"),
        (lambda run: run.log({"loss": 1.0}, step=2**64), "step", f"log() at step {2**64}"),
        (lambda run: run.log({"loss": "low"}, step=0), "value", "loss: str is no number"),
        (lambda run: run.log({7: 1.0}, step=0), "name", "metric name 7 is no text"),
        (lambda run: run.log(None, step=0), "log", "log: "),
        (lambda run: run.log([1.0], step=0), "log", "log: "),
    ],
)
def test_refused(
    recording: Run,
    records_of: RecordsOf,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[Run], None],
    reason: str,
    text: str,
) -> None:
    """A call that cannot be served is counted in the journal and logged; it raises nothing and loses nothing."""
    call(recording)
    with recording.step(100):
        recording.log({"after": 1.0})
    records = records_of(recording)

    assert refusals(records) == {reason: 1}
    assert [(level, text in message) for _, level, message in caplog.record_tuples] == [(logging.WARNING, True)]
    assert logged(records)[-1] == (100, {"after": 1.0})


def test_inside_a_refused_step(recording: Run, records_of: RecordsOf) -> None:
    """What happens inside a refused step belongs to the step before, and the open step stays open."""
    with recording.step(0), recording.step(1), recording.phase("generate"):
        recording.log({"loss": 1.0})
    records = records_of(recording)

    assert logged(records) == [(0, {"loss": 1.0})]
    assert started(records)["generate"].parent_id == step_ids(recording.id, 0, 0).span_id
    assert [record.step for record in records if isinstance(record, StepEnded)] == [0]


def test_refused_step_passes_exceptions(recording: Run) -> None:
    """An exception passes a refused step unchanged too."""
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, recording.step(-1):
        raise error

    assert error is caught.value


def test_refusals_are_logged_seldom(recording: Run, records_of: RecordsOf, caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are all counted, and logged the 1st, 10th, 100th and 1000th time."""
    for _ in range(1500):
        recording.log({"loss": 1.0}, step=-1)

    assert refusals(records_of(recording)) == {"step": 1500}
    assert [message.rpartition("refused ")[2] for message in caplog.messages] == [
        "1 time)",
        "10 times)",
        "100 times)",
        "1000 times)",
    ]


def test_after_finish(recording: Run, records_of: RecordsOf, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is called after `finish` is logged as refused, raises nothing, and changes nothing recorded."""
    recording.finish()
    with recording.step(0), recording.phase("generate"):
        recording.log({"loss": 1.0})
        recording.event("checkpoint")
    recording.params({"lr": 1})

    assert kinds(records_of(recording)) == ["Started", "Finished"]
    assert "the run has finished; nothing more is recorded (refused 1 time)" in caplog.messages[0]


def test_finish_in_a_step(recording: Run, records_of: RecordsOf) -> None:
    """`finish` inside a step ends the step, and leaving it afterwards does nothing."""
    with recording.step(0):
        recording.finish()

    assert kinds(records_of(recording)) == ["Started", "StepStarted", "StepEnded", "Finished"]
    assert context.get_current() == {}


def test_finish_twice(recording: Run, records_of: RecordsOf) -> None:
    """A second `finish` does nothing."""
    recording.finish()
    recording.finish()

    assert kinds(records_of(recording)) == ["Started", "Finished"]


def test_run_as_a_context(tmp_path: Path, records_of: RecordsOf) -> None:
    """Leaving `with init(…)` finishes the run, and lets an exception pass."""
    with pytest.raises(KeyError), begin(tmp_path) as run:
        raise KeyError

    assert isinstance(records_of(run)[-1], Finished)
    assert otel_rl.current() is None


@pytest.mark.parametrize(
    ("attributes", "kept"),
    [
        ({"seed": 2**64, "good": 1}, {"good": 1}),
        ({"seed": [2**64], "good": 1}, {"good": 1}),
        ({"text": "\ud800", "good": 1}, {"good": 1}),
        ({"text": ["\ud800"], "good": 1}, {"good": 1}),
        ({"\ud800": 1, "good": 1}, {"good": 1}),
    ],
)
def test_attributes_that_cannot_be_encoded(
    recording: Run, records_of: RecordsOf, attributes: dict[str, object], kept: dict[str, object]
) -> None:
    """An attribute that no record can hold costs neither the end of its span nor the other attributes."""
    with recording.step(0, **attributes), recording.phase("generate", **attributes):
        recording.event("sampled", **attributes)
    records = records_of(recording)

    assert kinds(records) == ["Started", "StepStarted", "SpanStarted", "Happened", "SpanEnded", "StepEnded"]
    for record in records[3:]:
        assert isinstance(record, (Happened, SpanEnded, StepEnded))
        assert record.attributes is not None
        assert kept.items() <= record.attributes.items()


def test_exception_that_cannot_be_encoded(recording: Run, records_of: RecordsOf) -> None:
    """An exception whose text is no valid Unicode costs neither the end of its span nor its type."""
    with pytest.raises(ValueError, match="file"), recording.phase("load"):
        raise ValueError("file \udcff")
    error = ended(records_of(recording), "load").error

    assert error is not None
    assert error[0] == "ValueError"


def test_metric_name_that_cannot_be_encoded(recording: Run, records_of: RecordsOf) -> None:
    """A metric's name that is no valid Unicode does not cost the other values of the call."""
    recording.log({"\ud800": 1.0, "loss": 2.0}, step=0)
    ((_, values),) = logged(records_of(recording))

    assert values["loss"] == 2.0


def test_empty_metric_name(recording: Run, records_of: RecordsOf) -> None:
    """An empty name is refused alone, beside plain values too."""
    recording.log({"": 1.0, "loss": 2.0}, step=0)

    assert logged(records_of(recording)) == [(0, {"loss": 2.0})]


def test_params_that_cannot_be_encoded(recording: Run, records_of: RecordsOf) -> None:
    """A hyper-parameter that no record can hold does not cost the others."""
    recording.params({"seed": 2**64, "path": "\udcff", "lr": 1e-6})
    *_, record = records_of(recording)

    assert isinstance(record, Configured)
    assert record.values["lr"] == 1e-6


def test_phase_whose_name_is_no_text(recording: Run) -> None:
    """A phase whose name is no text is recorded all the same, under its text."""
    from otel_rl.journal import Reader
    from otel_rl.records import AnyRecord

    with recording.phase(7):  # type: ignore[arg-type]
        pass
    reader = Reader(recording.dir / "local" / "journals" / "rank0.attempt0", AnyRecord)

    assert list(started(reader.read())) == ["7"]
    assert reader.undecodable == 0


def test_attributes_of_any_name(recording: Run, records_of: RecordsOf) -> None:
    """Attributes may have the names of our own parameters."""
    with recording.step(0, number=7), recording.phase("generate", name="x"):
        recording.event("checkpoint", name="y")
    records = records_of(recording)
    (event,) = (record for record in records if isinstance(record, Happened))

    assert ended(records, "generate").attributes == {"name": "x"}
    assert event.attributes == {"name": "y"}


def test_step_that_never_began(recording: Run, records_of: RecordsOf) -> None:
    """A step that was made and not entered keeps no other from beginning."""
    recording.step(0)
    with recording.step(1):
        pass

    assert [record.step for record in records_of(recording) if isinstance(record, StepStarted)] == [1]


_FULL_DISK = """
import logging, otel_rl, resource
logging.disable()
from otel_rl.journal import Reader
from otel_rl.records import AnyRecord, Logged, Refusals, StepEnded, StepStarted
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", journal_limit=1 << 30)
text = "x" * 4000
def steps(first, last):
    for number in range(first, last):
        with run.step(number, text=text):
            run.log({"loss": number / 3})
steps(0, 10)
unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
steps(10, 2000)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
steps(2000, 2010)
run.log({}, step=-1)
run.finish()
reader = Reader(run.dir / "local" / "journals" / "rank0.attempt0", AnyRecord)
records = []
while more := reader.read():
    records += more
kept = [r.step for r in records if isinstance(r, Logged)]
print(kept[:11] == list(range(11)), kept[-10:] == list(range(2000, 2010)), len(kept) < 2000, reader.skipped_bytes)
refused = [r.counts for r in records if isinstance(r, Refusals)][-1]
of_steps = [r for r in records if isinstance(r, (StepStarted, Logged, StepEnded))]
print(refused["record"] == 3 * 2010 - len(of_steps))
"""


def test_full_disk(tmp_path: Path) -> None:
    """A full disk raises nothing in the trainer; what is lost is counted, what is kept is whole, and it goes on."""
    assert run_python(_FULL_DISK, tmp_path) == "True True True 0\nTrue\n"


# Beginning, and beginning again


def test_current(tmp_path: Path) -> None:
    """`current` is the run between `init` and `finish`."""
    before = otel_rl.current()
    run = begin(tmp_path)
    during = otel_rl.current()
    run.finish()

    assert before is otel_rl.current() is None
    assert run is during


def test_same_again(tmp_path: Path) -> None:
    """`init` with the same keywords, or with none, returns the run that is being recorded."""
    keywords = {"config": {"lr": 1}, "reduce": {"a": "max"}}
    run = begin(tmp_path, **keywords)

    assert run is begin(tmp_path, **keywords)
    assert run is otel_rl.init()


def test_other_again(tmp_path: Path) -> None:
    """`init` with other keywords is an error that says what to do."""
    run = begin(tmp_path)
    with pytest.raises(SettingsError, match=rf"run {run.id} is being recorded.*finish\(\) it first"):
        begin(tmp_path, name="other")


def test_again_after_finish(tmp_path: Path, records_of: RecordsOf) -> None:
    """After `finish` another run can begin."""
    first = begin(tmp_path)
    first.finish()
    second = begin(tmp_path)
    second.log({"loss": 1.0}, step=0)

    assert first.id != second.id
    assert kinds(records_of(first)) == ["Started", "Finished"]
    assert kinds(records_of(second)) == ["Started", "Logged"]


def test_attempts(tmp_path: Path, records_of: RecordsOf) -> None:
    """Beginning the same run again is the next attempt: another journal, and other traces of the same steps."""
    traces = set()
    for attempt in range(3):
        run = begin(tmp_path, id="run-7")
        with run.step(0), run.phase("generate"):
            pass
        records = records_of(run)
        run.finish()

        assert isinstance(records[0], Started)
        assert attempt == run.attempt == records[0].attempt

        traces.add(started(records)["generate"].trace_id)

    assert len(traces) == 3


def test_attempts_of_a_process_that_was_killed(tmp_path: Path) -> None:
    """A process that was killed does not keep the next attempt from beginning."""
    script = f"""
import os, otel_rl
otel_rl.init(agent="off", exporters=[], quiet=True, project="test", dir={str(tmp_path)!r}, id="run-7")
os.kill(os.getpid(), 9)
"""
    killed = start_python(script, tmp_path)
    killed.communicate(timeout=60)

    assert killed.returncode == -9
    assert begin(tmp_path, id="run-7").attempt == 1


def test_two_processes_with_one_rank(tmp_path: Path) -> None:
    """A second process that claims the same rank fails with a word on what to do."""
    begin(tmp_path, id="run-7")
    script = f"""
import otel_rl
try:
    otel_rl.init(agent="off", exporters=[], quiet=True, project="test", dir={str(tmp_path)!r}, id="run-7")
except otel_rl.SettingsError as error:
    print(error)
"""
    text = run_python(script, tmp_path)

    assert "rank0.attempt0" in text
    assert "being recorded by another process; give each process its own rank=" in text
    assert [path.name for path in (tmp_path / "test" / "run-7" / "local" / "journals").iterdir()] == ["rank0.attempt0"]


def test_ranks_and_roles(tmp_path: Path) -> None:
    """Every rank and every role has a journal of its own in the same directory."""
    script = f"""
import sys, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", dir={str(tmp_path)!r}, id="run-7")
print(run.dir)
"""
    run = begin(tmp_path, id="run-7", world_size=2, rank=0)
    others = [
        run_python(script, tmp_path, OTEL_RL_RANK="1", OTEL_RL_WORLD_SIZE="2"),
        run_python(script, tmp_path, OTEL_RL_ROLE="reward"),
    ]
    journals = {path.name for path in (run.dir / "local" / "journals").iterdir()}

    assert [f"{run.dir}\n"] * 2 == others
    assert journals == {"rank0.attempt0", "rank1.attempt0", "reward.attempt0"}


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"exporters": ["wandbb"]}, "there is no exporter 'wandbb'; known are: console, jsonl, otlp_logs, otlp_traces"),
        ({"exporters": [{"jsonl": {"color": "red"}}]}, "exporter 'jsonl': .*'color'.*its options are: path"),
        ({"exporters": [NeedsAPackage]}, "needs the package 'no_such_package'.*pip install 'otel-rl\\[wishes\\]'"),
        ({"exporters": [f"{__name__}:NeedsAPackage"]}, "needs the package 'no_such_package'"),
        ({"exporters": [{f"{__name__}:Colorful": {"colour": "red"}}]}, "'colour'.*its options are: color"),
        pytest.param({"exporters": ["no_such_module:Exporter"]}, "no_such_module"),
        pytest.param({"exporters": [f"{__name__}:NoSuchExporter"]}, "NoSuchExporter"),
        pytest.param({"exporters": [NeedsAPartOfAPackage]}, "needs the package 'no_such_package.part'"),
    ],
)
def test_bad_exporter(tmp_path: Path, keywords: dict[str, object], expected: str) -> None:
    """An exporter that is unknown, lacks its package or has a wrong option fails `init`, which says what to do."""
    with pytest.raises(SettingsError, match=expected):
        begin(tmp_path, **keywords)

    assert otel_rl.current() is None


def test_exporter_with_an_option(tmp_path: Path) -> None:
    """A good exporter is checked without being built."""
    assert begin(tmp_path, exporters=[{f"{__name__}:Colorful": {"color": "blue"}}]).attempt == 0


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        pytest.param("OTEL_EXPORTER_PROMETHEUS_PORT", "http"),
        ("OTEL_METRICS_EXPORTER", "influx"),
    ],
)
def test_bad_opentelemetry_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    """A wrong value of OpenTelemetry's own variables is an error that shows it."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(SettingsError, match=text):
        begin(tmp_path)


def test_unwritable_directory(tmp_path: Path) -> None:
    """A directory that cannot be made fails `init`, which names it."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"file/runs.*Not a directory"):
        begin(tmp_path / "file" / "runs")


# Functions, threads, processes


def test_traced(recording: Run, records_of: RecordsOf) -> None:
    """Each call of a traced function is a phase; its arguments, its result and its name are the same."""

    @otel_rl.traced("reward", model="judge")
    def score(text: str, *, scale: float = 1.0) -> float:
        """Score a text."""
        return len(text) * scale

    with recording.step(0):
        result = score("abc", scale=2.0)
    records = records_of(recording)

    assert result == 6.0
    assert (score.__name__, score.__doc__) == ("score", "Score a text.")
    assert started(records)["reward"].parent_id == step_ids(recording.id, 0, 0).span_id
    assert ended(records, "reward").attributes == {"model": "judge"}


def test_traced_coroutine(recording: Run, records_of: RecordsOf) -> None:
    """A traced coroutine is a phase until it ends, and coroutines at once do not become each other's children."""
    order: list[str] = []

    @otel_rl.traced("rollout")
    async def rollout(name: str) -> str:
        with recording.phase(name):
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)
        return name

    async def both() -> list[str]:
        return await asyncio.gather(rollout("a"), rollout("b"))

    assert asyncio.run(both()) == ["a", "b"]
    assert order == ["a", "b", "a", "b"]

    records = records_of(recording)
    rollouts = {record.span_id for record in records if isinstance(record, SpanStarted) and record.name == "rollout"}

    assert rollouts == {started(records)[name].parent_id for name in "ab"}
    assert len(rollouts) == 2


def test_traced_without_a_run() -> None:
    """Without a run a traced function is what it was."""
    assert otel_rl.traced("reward")(len)("abc") == 3


def test_traced_before_init(tmp_path: Path, records_of: RecordsOf) -> None:
    """A function that is traced when it is defined records the run that is there when it is called."""
    size = otel_rl.traced("reward")(len)
    run = begin(tmp_path)
    size("abc")

    assert "reward" in started(records_of(run))


def test_traced_exception(recording: Run, records_of: RecordsOf) -> None:
    """An exception passes a traced function unchanged, and is recorded."""
    with pytest.raises(TypeError):
        otel_rl.traced("reward")(len)(7)
    error = ended(records_of(recording), "reward").error

    assert error is not None
    assert error[0] == "TypeError"


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator])
def test_traced_generator(function: Callable[[], object]) -> None:
    """A generator cannot be traced, and the error says what can."""
    with pytest.raises(TypeError, match=rf"{function.__name__} is a generator; use `with run.phase\('reward'\)`"):
        otel_rl.traced("reward")(function)


def test_threads(recording: Run, records_of: RecordsOf) -> None:
    """Phases in threads that know nothing of the step hang under the step that is open."""

    def score(number: int) -> None:
        with recording.phase(f"outer{number}"), recording.phase(f"inner{number}"):
            recording.log({f"score{number}": number})

    with recording.step(3), ThreadPoolExecutor(4) as pool:
        list(pool.map(score, range(50)))
    records = records_of(recording)
    spans = started(records)
    ids = step_ids(recording.id, 0, 3)

    assert {ids.span_id} == {spans[f"outer{number}"].parent_id for number in range(50)}
    assert all(spans[f"inner{n}"].parent_id == spans[f"outer{n}"].span_id for n in range(50))
    assert {(ids.trace_id.to_bytes(16, "big"), 3)} == {(span.trace_id, span.step) for span in spans.values()}
    assert [step for step, _ in logged(records)] == [3] * 50
    assert set(range(50)) == {number for _, values in logged(records) for number in values.values()}


_FORKED = """
import os, otel_rl
from otel_rl.journal import Reader
from otel_rl.records import AnyRecord
def journal(run, who):
    reader = Reader(run.dir / "local" / "journals" / f"{who}.attempt0", AnyRecord)
    return [type(record).__name__ for record in reader.read()]
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", id="run-7")
with run.step(0):
    with run.phase("generate"):
        child = os.fork()
        if child == 0:
            CHILD
            os._exit(0)
        os.waitpid(child, 0)
run.finish()
print(journal(run, "rank0"))
"""
_PARENT = ["Started", "StepStarted", "SpanStarted", "SpanEnded", "StepEnded", "Finished"]


def forked(tmp_path: Path, *child: str) -> str:
    return run_python(_FORKED.replace("CHILD", "\n            ".join(child)), tmp_path)


def test_silent_child(tmp_path: Path) -> None:
    """A forked child that uses its parent's run writes nothing into its journal, and raises nothing."""
    output = forked(
        tmp_path,
        "with run.phase('x'): run.log({'a': 1})",
        "with run.step(1): run.event('e')",
        "run.log({'a': object()}, step=-1)",
        "run.params({})",
        "print(otel_rl.current(), run.finish(), flush=True)",
    )

    assert output == f"None False\n{_PARENT}\n"


def test_child_that_ends_as_usual(tmp_path: Path) -> None:
    """A forked child that unwinds its parent's step and phase, and ends with exit handlers, writes nothing either."""
    assert forked(tmp_path, "raise SystemExit") == f"{_PARENT}\n"


def test_recording_child(tmp_path: Path) -> None:
    """A forked child that calls `init` records a journal of its own, and its parent's is left alone."""
    output = forked(
        tmp_path,
        "mine = otel_rl.init(agent='off', exporters=[], quiet=True, project='test', id='run-7', role='worker')",
        "with mine.step(5): mine.log({'a': 1})",
        "mine.finish()",
        "print(journal(mine, 'worker'), flush=True)",
    )

    assert output == f"{['Started', 'StepStarted', 'Logged', 'StepEnded', 'Finished']}\n{_PARENT}\n"


def test_child_with_its_parents_rank(tmp_path: Path) -> None:
    """A forked child cannot claim its parent's rank while that lives."""
    output = forked(
        tmp_path,
        "try: otel_rl.init(agent='off', exporters=[], quiet=True, project='test', id='run-7')",
        "except otel_rl.SettingsError as error: print('by another process' in str(error), flush=True)",
    )

    assert output == f"True\n{_PARENT}\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    """A process of `multiprocessing` that calls `init` has its whole journal, though it never calls `finish`."""
    (tmp_path / "workers.py").write_text(
        """
import otel_rl
def work(rank):
    run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", id="run-7", rank=rank, world_size=2)
    run.log({"loss": 1.0}, step=0)
"""
    )
    script = f"""
import multiprocessing, pathlib, workers
from otel_rl.journal import Reader
from otel_rl.records import AnyRecord
if __name__ == "__main__":
    processes = [multiprocessing.get_context({method!r}).Process(target=workers.work, args=(n,)) for n in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    for path in sorted(pathlib.Path("runs/test/run-7/local/journals").iterdir()):
        print(path.name, [type(record).__name__ for record in Reader(path, AnyRecord).read()])
"""
    expected = [f"rank{rank}.attempt0 {['Started', 'Logged', 'Finished']}\n" for rank in range(2)]

    assert run_python(script, tmp_path) == "".join(expected)


def test_exit_without_finish(tmp_path: Path, records_of: RecordsOf) -> None:
    """A script that ends without `finish` has finished all the same."""
    script = """
import otel_rl
from otel_rl.journal import Reader
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", id="run-7", dir=".")
run.log({"loss": 1.0}, step=0)
"""
    run_python(script, tmp_path)
    again = begin(tmp_path, id="run-7")
    again.attempt = 0

    assert kinds(records_of(again)) == ["Started", "Logged", "Finished"]


# OpenTelemetry


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


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_sdk_disabled(tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """With `OTEL_SDK_DISABLED=true` no span is recorded, and values are."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", text)
    run = begin(tmp_path)
    with run.step(0), run.phase("generate") as phase, run.tracer_provider.get_tracer("x").start_as_current_span("y"):
        phase.set_attribute("a", 1)
        run.log({"loss": 1.0})
    records = records_of(run)

    assert kinds(records) == ["Started", "StepStarted", "Logged", "StepEnded"]
    assert not phase.is_recording()


def test_sdk_not_disabled(tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other value of `OTEL_SDK_DISABLED` disables nothing."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "1")
    run = begin(tmp_path)
    with run.phase("generate"):
        pass

    assert "generate" in started(records_of(run))

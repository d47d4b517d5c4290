"""Devices of a run: it finds them, never waits for them, and records their values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import otel_rl
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.devices.clock import DeviceClock
from otel_rl.recorder.devices.jax_devices import JaxDevices
from otel_rl.recorder.devices.values import DeviceValues
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import (
    DeviceSeen,
    DeviceTimed,
    Logged,
    OnDevice,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
)
from otel_rl.recorder.trainer.current import recorder_of
from tests.processes import run_python
from tests.real_parts import needs
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, started, step
from tests.recorder.devices.gpus import GIB, Allocator, Queue
from tests.recorder.trainer.reading import RecordsOf, begin, refusals


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def run(tmp_path: Path, queue: Queue) -> otel_rl.Run:
    """A run on a device whose queue the test works off."""
    run = begin(tmp_path)
    recorder_of(run).devices.found = Allocator()
    recorder_of(run).devices._clock = DeviceClock(queue.new_mark, queue.is_capturing)
    return run


def test_devices_are_announced_once(run: otel_rl.Run, records_of: RecordsOf) -> None:
    """With UUID, name and size, when a step finds them."""
    for number in range(2):
        with run.step(number):
            pass
    found = [record for record in records_of(run) if isinstance(record, DeviceSeen)]

    assert [(one.index, one.uuid, one.name, one.total) for one in found] == [(0, "GPU-0", "imaginary", 80 * GIB)]


def test_a_phase_is_timed_when_its_time_is_known(run: otel_rl.Run, queue: Queue, records_of: RecordsOf) -> None:
    """Its end promises it, and a later call records it; nothing waits in between."""
    with run.step(0):
        with run.phase("generate"):
            pass
        queue.work(10)
        queue.work(20)
        queue.work(300)
        with run.phase("train"):
            pass
    records = records_of(run)
    (timed,) = [record for record in records if isinstance(record, DeviceTimed)]
    (ended, *_) = [record for record in records if isinstance(record, SpanEnded)]

    assert ended.timed
    assert (timed.step, timed.span_id, timed.seconds, timed.offset) == (0, ended.span_id, 0.3, 0.02)


@needs("torch")
def test_values_come_later(run: otel_rl.Run, queue: Queue, records_of: RecordsOf) -> None:
    """They belong to the step that they were logged for, and readers are signaled to wait for them."""
    import torch

    devices = recorder_of(run).devices
    devices._clock = None
    devices._values = DeviceValues(torch, queue.mark, queue.is_capturing, lambda device: 0, pinned=False)
    loss = torch.tensor(0.5)
    with run.step(0):
        recorder_of(run).devices.copy_values({"loss": loss}, 0, 1.0)
        loss.zero_()
    queue.work(1)
    with run.step(1):
        pass
    records = [record for record in records_of(run) if isinstance(record, (Logged, OnDevice, StepStarted, StepEnded))]

    assert [type(record).__name__ for record in records] == [
        *("StepStarted", "OnDevice", "StepEnded"),
        *("Logged", "OnDevice", "StepStarted", "StepEnded"),
    ]
    assert (records[3].step, records[3].values) == (0, {"loss": 0.5})
    assert [record.count for record in records if isinstance(record, OnDevice)] == [1, -1]


def test_a_device_that_fails_does_not_reach_the_trainer(run: otel_rl.Run, records_of: RecordsOf) -> None:
    """An exception of the driver is counted."""

    def fail(*, used: bool = False) -> None:
        raise RuntimeError("the GPU has fallen off the bus")

    recorder_of(run).devices.found.memory = fail  # type: ignore[union-attr, method-assign]
    with run.step(0), run.phase("generate"):
        pass

    assert refusals(records_of(run))["devices"] > 0


@needs("torch")
def test_without_an_initialized_device_nothing_is_asked(tmp_path: Path, records_of: RecordsOf) -> None:
    """Torch may be there, even with CUDA: a process that did not begin to use it is not made to."""
    import torch

    run = begin(tmp_path)
    with run.step(0), run.phase("generate"):
        pass

    assert not torch.cuda.is_initialized()
    assert recorder_of(run).devices.found is None
    assert [record for record in records_of(run) if isinstance(record, DeviceSeen)] == []


@pytest.mark.slow
@needs("jax")
def test_jax_is_not_initialized(tmp_path: Path) -> None:
    """Asking for its devices would do it, and take their memory; CPUs tell of none, and their values are logged."""
    script = """
import jax, otel_rl
from jax._src import xla_bridge
from otel_rl.recorder.trainer.current import recorder_of
run = otel_rl.init(agent="off", exporters=[], quiet=True)
with run.step(0):
    pass
print(xla_bridge.backends_are_initialized())
value = jax.numpy.ones(())
recorder_of(run).devices.silent_until = 0
with run.step(1):
    run.log({"loss": value})
print(recorder_of(run).devices.found, run.refused)
"""

    assert run_python(script, tmp_path, JAX_PLATFORMS="cpu") == "False\nNone {}\n"


def test_devices_of_jax() -> None:
    """The memory statistics of a TPU, as its documentation has them; no TPU was available."""
    told = {"bytes_in_use": 3, "peak_bytes_in_use": 5, "bytes_limit": 16}
    devices = JaxDevices([SimpleNamespace(device_kind="TPU v5", memory_stats=lambda: told)])
    (memory,) = devices.memory()

    assert devices.find() == [0]
    assert devices.find() == []
    assert devices.describe(0) == ("", "TPU v5", 16)
    assert (memory.allocated, memory.peak_allocated) == (3, 5)


@pytest.fixture
def reducer() -> Reducer:
    """A reducer that knows rank 0."""
    found = reducing()
    feed(found, "rank0", started())
    return found


def test_a_step_waits_for_its_values(reducer: Reducer) -> None:
    """Its row leaves when what is on a device has come, though the trainer is steps ahead."""
    early = feed(reducer, "rank0", *step(0, 0, OnDevice(0, 1)), StepStarted(1, S, b""))
    row = feed(reducer, "rank0", logged(0, loss=0.5), OnDevice(0, -1))

    assert rows(early) == []
    assert rows(row)[0].values["loss"] == 0.5


def test_what_came_may_be_recorded_before_what_was_promised(reducer: Reducer) -> None:
    """Two threads record; the step waits for nothing then."""
    records = step(0, 0, logged(0, loss=0.5), OnDevice(0, -1), OnDevice(0, 1))

    assert len(rows(feed(reducer, "rank0", *records, StepStarted(1, S, b"")))) == 1


def test_a_step_waits_no_longer_than_for_a_rank(reducer: Reducer) -> None:
    """After the deadline it is closed without."""
    feed(reducer, "rank0", *step(0, 0, logged(0, loss=1.0), OnDevice(0, 1)), StepStarted(1, S, b""))

    assert rows(reducer.tick(5 * S).items) == []
    assert rows(reducer.tick(12 * S).items)[0].values["loss"] == 1.0


def test_times_of_the_device_are_in_the_row(reducer: Reducer) -> None:
    """With the gap: what the host took more, to launch or to wait, than the device did."""
    items = feed(
        reducer,
        "rank0",
        StepStarted(0, 0, b""),
        SpanStarted(7, 0, b"", 0, "generate", 0, b""),
        SpanEnded(7, 2 * S, b"", timed=True),
        StepEnded(0, 2 * S, b""),
        StepStarted(1, 2 * S, b""),
    )
    items += feed(reducer, "rank0", DeviceTimed(0, 7, 1.5, 0.25))
    (row,) = rows(items)
    (span,) = [item for item in items if getattr(item, "span_id", "") == f"{7:016x}"]

    assert (row.values["time/generate"], row.values["time/generate/device"]) == (2.0, 1.5)
    assert row.values["time/generate/gap"] == 0.5
    assert span.attributes["rl.phase_device.duration"] == 1.5
    assert span.attributes["rl.phase_device.offset"] == 0.25


def test_a_process_that_died_is_not_waited_for(reducer: Reducer) -> None:
    """Nothing comes from its devices any more."""
    items = feed(reducer, "rank0", *step(0, 0, logged(0, loss=1.0), OnDevice(0, 1)), Lost(2 * S))

    assert rows(items)[0].values["loss"] == 1.0


@pytest.mark.slow
@needs("torch")
def test_a_phase_in_a_compiled_function(tmp_path: Path) -> None:
    """It breaks no graph, and what is computed is what should be; the same phase outside of it is recorded."""
    script = """
import torch, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True)

def train(x):
    with run.phase("forward", tokens=3) as phase:
        y = x * 2
    return y + 1

with run.step(0):
    print(torch.compile(train, backend="eager", fullgraph=True)(torch.ones(2)).tolist(), train(torch.ones(2)).tolist())
"""

    assert run_python(script, tmp_path) == "[3.0, 3.0] [3.0, 3.0]\n"

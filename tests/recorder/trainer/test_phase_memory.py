"""Memory and time around a phase that loads and unloads states, in ROLL's names and in its order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from otel_rl import Run
from otel_rl.export import Item, Span
from otel_rl.recorder.journal.records import (
    DeviceMemory,
    DeviceSeen,
    Record,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
)
from otel_rl.recorder.trainer.current import recorder_of
from tests.recorder.agent.reducing import S, feed, reducing, rows, started
from tests.recorder.devices.gpus import GIB, Allocator
from tests.recorder.trainer.reading import RecordsOf, begin


def with_devices(run: Run, allocator: Allocator) -> Allocator:
    recorder_of(run).devices.found = allocator
    recorder_of(run).devices._announce()
    return allocator


def offloading(run: Run, allocator: Allocator, body: Callable[[], None], *, offload: bool = True) -> None:
    """One phase as ROLL's `state_offload_manager` has it: 20 GiB are loaded, used, and unloaded."""
    with run.phase("train_step") as phase:
        with phase.onload():
            allocator.calls.append("load")
            allocator.hold(20)
        try:
            with phase.execute():
                body()
        finally:
            if offload:
                with phase.offload():
                    allocator.calls.append("unload")
                    allocator.hold(1)


def row_of(records: Sequence[Record]) -> dict[str, int | float]:
    return rows(closed(records))[0].values


def closed(records: Sequence[Record]) -> list[Item]:
    return feed(reducing(), "rank0", *records, StepStarted(9, 9 * S, b""))


def retimed(records: Sequence[Record], seconds: Sequence[float]) -> list[Record]:
    """Put the boundaries of spans and steps at the given times."""
    times = iter(seconds)
    for record in records:
        if isinstance(record, (StepStarted, SpanStarted, SpanEnded, StepEnded)):
            record.time = round(next(times) * S)
    return list(records)


@pytest.fixture
def allocator(recording: Run) -> Allocator:
    """The devices of the run."""
    return with_devices(recording, Allocator())


@pytest.fixture
def recorded(recording: Run, allocator: Allocator, records_of: RecordsOf) -> tuple[Allocator, list[Record]]:
    """A step with one phase that loads, works and unloads, where peaks are reset."""

    def body() -> None:
        allocator.calls.append("body")
        allocator.hold(40)
        allocator.hold(20)

    allocator.hold(2)
    with recording.step(0):
        allocator.calls.clear()
        offloading(recording, allocator, body)
    return allocator, records_of(recording)


def test_the_order_of_events(recorded: tuple[Allocator, list[Record]]) -> None:
    """Peaks are reset, then states are loaded, used and unloaded, with a snapshot after each."""
    calls = [call for call in recorded[0].calls if call != "snapshot"]

    assert calls[:2] == ["reset", "reset"]
    assert [call for call in calls if call != "reset"] == ["load", "body", "unload"]
    assert re.fullmatch(
        r"(snapshot )?reset .*load .*snapshot .*body .*snapshot .*unload .*snapshot.*", " ".join(recorded[0].calls)
    )


def test_memory_of_a_phase(recorded: tuple[Allocator, list[Record]]) -> None:
    """Four snapshots with their peaks, in GiB; fractions where the work has ended; the process at both ends."""
    found = row_of(recorded[1])
    head = "memory/train_step"
    expected = {
        **snapshot(f"{head}/start/offload", 2, 2),
        **snapshot(f"{head}/start/onload", 20, 20),
        **snapshot(f"{head}/end/onload", 20, 40),
        **snapshot(f"{head}/end/offload", 1, 40),
        f"{head}/end/onload/max_allocated_frac/0": 0.5,
        f"{head}/end/onload/max_reserved_frac/0": 1.0,
    }

    assert {name: value for name, value in found.items() if name.startswith(head)} == expected


def snapshot(head: str, allocated: float, peak: float) -> dict[str, float]:
    return {
        f"{head}/allocated/0": allocated,
        f"{head}/reserved/0": 2 * allocated,
        f"{head}/max_allocated/0": peak,
        f"{head}/max_reserved/0": 2 * peak,
    }


def test_times_of_a_phase(recorded: tuple[Allocator, list[Record]]) -> None:
    """The parts are in the total: 1 s to load, 2 s of work, 3 s to unload."""
    found = row_of(retimed(recorded[1], [0, 0, 0, 1, 1, 3, 3, 6, 6, 6]))

    assert {name: value for name, value in found.items() if name.startswith("time/train_step")} == {
        "time/train_step/onload": 1.0,
        "time/train_step/execute": 2.0,
        "time/train_step/offload": 3.0,
        "time/train_step/total": 6.0,
    }


@pytest.mark.parametrize("devices", [1, 8])
def test_how_many_names_there_are(devices: int, recording: Run, records_of: RecordsOf) -> None:
    """18 for each phase and device, and four of memory of the process and four of time for each phase."""
    allocator = with_devices(recording, Allocator(devices))
    with recording.step(0):
        offloading(recording, allocator, lambda: None)
    found = [name for name in row_of(records_of(recording)) if "train_step" in name]

    assert len([name for name in found if re.search(r"^memory/train_step/.*/\d+$", name)]) == 18 * devices
    assert len([name for name in found if name.startswith("memory/cpu/train_step/")]) == 4
    assert len([name for name in found if name.startswith("time/train_step/")]) == 4


class Unreset(Allocator):
    """One whose peaks only its owner resets."""

    def begin_peak(self) -> None:
        self.calls.append("left alone")


@pytest.mark.parametrize(
    ("peaks", "first", "second", "expected"),
    [("reset", 40, 30, 30), ("shared", 40, 30, 10), ("shared", 20, 30, 30)],
)
def test_the_peak_of_one_phase_is_not_that_of_the_next(
    tmp_path: Path, records_of: RecordsOf, peaks: str, first: int, second: int, expected: int
) -> None:
    """With and without a reset; where the allocator's own peak rises inside of a phase, that is its peak."""
    run = begin(tmp_path, memory={"peaks": peaks})
    allocator = with_devices(run, Allocator() if peaks == "reset" else Unreset())
    with run.step(0):
        for name, highest in (("generate", first), ("train", second)):
            with run.phase(name):
                allocator.hold(highest)
                allocator.hold(10)
    found = row_of(records_of(run))

    assert found["memory/generate/end/onload/max_allocated/0"] == first
    assert found["memory/train/end/onload/max_allocated/0"] == expected


def test_memory_is_read_once_at_a_boundary(recording: Run, allocator: Allocator) -> None:
    """At the start and the end of each phase and step, at most."""
    with recording.step(0):
        for _ in range(10):
            with recording.phase("generate"):
                pass

    assert allocator.calls.count("snapshot") <= 2 * 10 + 2


def test_an_exception_loses_nothing(recording: Run, allocator: Allocator, records_of: RecordsOf) -> None:
    """The body raises: the snapshots and times of the end are there, and the exception passes."""

    def fail() -> None:
        allocator.hold(60)
        raise ValueError("bad batch")

    with pytest.raises(ValueError, match="bad batch"), recording.step(0):
        offloading(recording, allocator, fail, offload=False)
    records = records_of(recording)
    found = row_of(records)
    spans = {item.name: item for item in closed(records) if isinstance(item, Span)}

    assert found["memory/train_step/end/onload/max_allocated/0"] == 60
    assert found["memory/train_step/end/offload/allocated/0"] == 60
    assert {"time/train_step/total", "time/train_step/execute"} <= found.keys()
    assert spans["rl.train.execute"].error == "ValueError: bad batch"


def test_without_unloading_the_last_snapshot_is_there(
    recording: Run, allocator: Allocator, records_of: RecordsOf
) -> None:
    """It is that of the phase's end."""
    with recording.step(0):
        offloading(recording, allocator, lambda: None, offload=False)
    found = row_of(records_of(recording))

    assert found["memory/train_step/end/offload/allocated/0"] == 20
    assert "time/train_step/offload" not in found


def test_other_parts_tell_what_they_changed(recording: Run, allocator: Allocator, records_of: RecordsOf) -> None:
    """Such as the buffers of NCCL, which are in no allocator: memory of the whole device, whichever way it went."""
    with recording.step(0), recording.phase("train_step") as phase:
        with phase.onload(), phase.part("reload_nccl"):
            allocator.hold(3)
        with phase.offload(), phase.part("offload_nccl"):
            allocator.hold(1)
    found = row_of(records_of(recording))

    assert (found["memory/train_step/reload_nccl"], found["memory/train_step/offload_nccl"]) == (3, 2)
    assert {"time/train_step/reload_nccl", "time/train_step/offload_nccl"} <= found.keys()


def test_both_moments_of_the_start_are_told(recorded: tuple[Allocator, list[Record]]) -> None:
    """Memory of the process before loading is the phase's, after loading that of the end of the part."""
    spans = {item.name: item.attributes for item in closed(recorded[1]) if isinstance(item, Span)}

    assert spans["rl.train"]["rl.phase_process.memory.start"]
    assert spans["rl.train.onload"]["rl.phase_process.memory.end"]
    assert spans["rl.train.onload"]["rl.phase_part"] == "onload"
    assert spans["rl.train"]["rl.phase_device.memory.peak"] == 40 * GIB


def test_each_device_has_its_own_name() -> None:
    """Two processes that both call their device 0 have two devices, if their UUIDs differ."""
    reducer = reducing()
    reducer.feed([(f"rank{n}", started(n, local=2)) for n in range(2)])
    for n in range(2):
        memory = [DeviceMemory(0, (n + 1) * GIB, 4 * GIB, 4 * GIB, 4 * GIB)]
        feed(
            reducer,
            f"rank{n}",
            DeviceSeen(0, 0, f"GPU-{'ab'[n]}", "H200", 8 * GIB),
            StepStarted(0, 0, b"", memory),
            SpanStarted(1, 0, b"", 0, "generate", 0, b"", None, memory),
            SpanEnded(1, S, b"", devices=memory),
            StepEnded(0, S, b"", devices=memory),
        )
    (row,) = rows(reducer.feed([(f"rank{n}", StepStarted(1, 2 * S, b"")) for n in range(2)]).items)

    assert row.values["memory/generate/end/onload/allocated/0"] == 1
    assert row.values["memory/generate/end/onload/allocated/1"] == 2
    assert row.values["memory/device/1/headroom"] == 4
    assert row.values["memory/device/0/fragmentation"] == 3

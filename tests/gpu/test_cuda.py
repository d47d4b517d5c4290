"""Everything on, on a real device: nothing waits for it, and its metrics are right."""

from __future__ import annotations

import collections
import csv
import json
import shutil
import subprocess
from typing import Any

import pytest

import otel_rl
from otel_rl.export import Event
from otel_rl.recorder.agent.hardware.poller import Poller
from otel_rl.recorder.journal.records import DeviceSeen, DeviceTimed, Fingerprint, SpanEnded, SpanStarted, StepStarted
from tests.collector import wait_for
from tests.gpu.conftest import Trainer
from tests.recorder.agent.reducing import reducing, rows
from tests.recorder.trainer.reading import RecordsOf


def row_values(records: list[Any]) -> list[dict[str, float]]:
    reducer = reducing()
    items = reducer.feed([("rank0", record) for record in records]).items
    items += reducer.feed([("rank0", StepStarted(1 << 40, 1 << 62, b""))]).items
    return [row.values for row in rows(items)]


def test_no_call_waits_for_the_device(run: otel_rl.Run, trainer: Trainer) -> None:
    """Torch raises at a synchronizing call while its debug mode says so."""
    trainer.torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(2, 22):
            trainer.step(run, number)
    finally:
        trainer.torch.cuda.set_sync_debug_mode("default")
    trainer.torch.cuda.synchronize()

    assert run.refused == {}


def test_weights_are_sampled_without_waiting(run: otel_rl.Run, trainer: Trainer, records_of: RecordsOf) -> None:
    """The samples are those of the time of the call, although the optimizer moves the weights meanwhile."""
    torch = trainer.torch
    copies = {name: one.detach().cpu() for name, one in trainer.model.named_parameters()}
    torch.cuda.set_sync_debug_mode("error")
    try:
        run.weights(2, trainer.model.named_parameters())
        trainer.step(run, 2)
        run.weights(2, copies, side="engine")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    trainer.step(run, 3)
    first, second = [one for one in records_of(run) if isinstance(one, Fingerprint)][:2]

    assert {one.side: one.tensors for one in (first, second)} == dict.fromkeys(("trainer", "engine"), second.tensors)


def profiled(trainer: Trainer, run: otel_rl.Run | None, first: int) -> collections.Counter[str]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for number in range(first, first + 5):
            trainer.step(run, number)
        trainer.torch.cuda.synchronize()
    return collections.Counter(event.name for event in profiler.events())


def test_the_stream_gets_one_copy_more(run: otel_rl.Run, trainer: Trainer) -> None:
    """For each log: values of one type are put side by side and copied; nothing else is launched, nothing waits."""
    without = profiled(trainer, None, 0)
    with_ = profiled(trainer, run, 2)
    more = {name: n - without[name] for name, n in with_.items() if n > without[name]}
    waits = {name: n for name, n in more.items() if "Synchronize" in name}
    launched = {name: n for name, n in more.items() if name.startswith(("Memcpy", "Memset", "void "))}

    assert waits == {}
    assert sum(n for name, n in launched.items() if "DtoH" in name) == 5
    assert sum(n for name, n in launched.items() if "DtoH" not in name) <= 2 * 5  # the loss times two is the trainer's


def test_device_times_are_the_profilers(run: otel_rl.Run, trainer: Trainer, records_of: RecordsOf) -> None:
    """Within 2 %, for a phase of some hundred milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler, run.step(2), run.phase("long"):
        for _ in range(400):
            trainer.generate()
    trainer.torch.cuda.synchronize()
    with run.step(3):
        pass
    kernels = [event for event in profiler.events() if event.device_type.name == "CUDA"]
    expected = (max(k.time_range.end for k in kernels) - min(k.time_range.start for k in kernels)) / 1e6
    records = records_of(run)
    (begun,) = [record for record in records if isinstance(record, SpanStarted) and record.name == "long"]
    (timed,) = [record for record in records if isinstance(record, DeviceTimed) and record.span_id == begun.span_id]

    assert timed.seconds == pytest.approx(expected, rel=0.02)


def test_what_is_overwritten_right_after_arrives_as_it_was(
    run: otel_rl.Run, trainer: Trainer, records_of: RecordsOf
) -> None:
    """Though the device is far behind when it is overwritten."""
    loss = trainer.torch.zeros((), device="cuda")
    norm = trainer.torch.zeros((), device="cuda")
    for number in range(2, 12):
        with run.step(number):
            trainer.generate()
            loss.fill_(number)
            norm.fill_(-number)
            run.log({"loss": loss, "norm": norm})
            loss.zero_()
            norm.zero_()
    run.finish(0)
    found = [(values["loss"], values["norm"]) for values in row_values(records_of(run)) if "norm" in values]

    assert found == [(n, -n) for n in range(2, 12)]


def test_memory_of_phases(run: otel_rl.Run, trainer: Trainer, records_of: RecordsOf) -> None:
    """Memory that a phase allocates and frees is its peak, and the device is named."""
    with run.step(2), run.phase("burst"):
        block = trainer.torch.empty(1 << 30, dtype=trainer.torch.uint8, device="cuda")
        del block
    run.finish(0)
    records = records_of(run)
    (values,) = [values for values in row_values(records) if "memory/burst/end/onload/max_allocated/0" in values]
    (seen,) = [record for record in records if isinstance(record, DeviceSeen)]
    name = "memory/burst/end/onload"

    assert values[f"{name}/max_allocated/0"] - values[f"{name}/allocated/0"] == pytest.approx(1, abs=0.01)
    assert seen.uuid.startswith("GPU-")
    assert seen.total == trainer.torch.cuda.get_device_properties(0).total_memory


def test_graphs_are_left_alone(run: otel_rl.Run, trainer: Trainer, records_of: RecordsOf) -> None:
    """A phase inside of a captured graph is not timed on the device; the graph works."""
    graph = trainer.torch.cuda.CUDAGraph()
    with run.step(2):
        with trainer.torch.cuda.graph(graph), run.phase("captured"):
            out = trainer.data * 2
        graph.replay()
    trainer.torch.cuda.synchronize()
    ids = {r.span_id for r in records_of(run) if isinstance(r, SpanStarted) and r.name == "captured"}
    (ended,) = [r for r in records_of(run) if isinstance(r, SpanEnded) and r.span_id in ids]

    assert trainer.torch.equal(out, trainer.data * 2)
    assert not ended.timed


def test_running_out_of_memory_leaves_a_report(run: otel_rl.Run, trainer: Trainer, records_of: RecordsOf) -> None:
    """The phase, the allocator's summary, the largest tensors, the history and the ledger."""
    total = trainer.torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(trainer.torch.OutOfMemoryError), run.step(2), run.phase("train_step") as phase, phase.execute():
        trainer.torch.empty(2 * total, dtype=trainer.torch.uint8, device="cuda")
    run.finish(0)
    reducer = reducing()
    items = reducer.feed([("rank0", record) for record in records_of(run)]).items
    (report,) = [item for item in items if isinstance(item, Event) and item.name == "rl.memory.exhausted"]
    (history,) = (run.dir / "oom").glob("*.pickle")

    assert report.attributes["rl.phase"] == "train_step"
    assert "CUDA memory summary" in str(report.attributes["rl.memory.summary"])
    assert "float32 (2048, 2048)" in str(report.attributes["rl.memory.largest"])
    assert history.stat().st_size > 1000
    assert {book["of"] for book in json.loads(str(report.attributes["rl.memory.ledger"]))} >= {"device", "host"}


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs nvidia-smi")
def test_the_poller_agrees_with_nvidia_smi(trainer: Trainer) -> None:
    """UUID and size exactly; what changes, nearly."""
    poller = Poller(1.0)
    poller.start()
    samples = []
    wait_for(lambda: samples.extend(s for s in poller.pop() if s.probe.startswith("nvml/")) or samples, "no sample")
    query = "uuid,memory.total,memory.used,power.draw,temperature.gpu"
    output = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
    )
    poller.stop()
    told = {row[0].strip(): [float(cell) for cell in row[1:]] for row in csv.reader(output.stdout.splitlines())}
    found = {p.metric: p.value for p in samples[0].points if dict(p.attributes).get("hw.id") in told}
    (device,) = {dict(p.attributes)["hw.id"] for p in samples[0].points}
    total, used, power, temperature = told[str(device)]

    assert found["hw.gpu.memory.limit"] == pytest.approx(total * 2**20, rel=0.01)
    assert found["hw.gpu.memory.usage"] == pytest.approx(used * 2**20, abs=2**30)  # the driver's own memory
    assert found["hw.power"] == pytest.approx(power, rel=0.5)
    assert found["hw.temperature"] == pytest.approx(temperature, abs=5)

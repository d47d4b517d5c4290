"""The instruments: what a reader of the SDK sees of rows, phases and processes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_rl.analysis import Point
from otel_rl.export import AttributeValue, Row, RunInfo, Span
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.agent.steps.state import Journal
from otel_rl.recorder.journal.records import DeviceMemory, DeviceSeen, Started
from otel_rl.semconv.vocabulary import Vocabulary


def instruments() -> tuple[OtelMetrics, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    return OtelMetrics(RunInfo("i", "p", "n", "."), [reader], Vocabulary("auto")), reader


def data_points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    """Return what a scrape sees of a metric."""
    data = reader.get_metrics_data()
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
    return next((list(metric.data.data_points) for metric in metrics if metric.name == name), [])


def points(reader: InMemoryMetricReader, name: str) -> dict[tuple[Any, ...], float]:
    """Return the values of a metric by its attributes' values."""
    return {tuple(point.attributes.values()): point.value for point in data_points(reader, name)}


def journal(attempt: int = 0, rank: int = 0, role: str = "", refused: int = 0) -> Journal:
    started = Started("i", attempt, rank, 1, 1, role, 1, "host", 4096, 0)
    return Journal(started, step_ended_at=5 * 10**9, refusals={"step": refused} if refused else {})


def phase(seconds: float, name: str = "generate", **told: str | int) -> Span:
    """Return a phase of rank 0, or of another one."""
    attributes: dict[str, AttributeValue] = {"rl.phase": name, "rl.rank": 0}
    attributes |= {f"rl.{key}": value for key, value in told.items()}
    return Span(name, "", "", "", 0, round(seconds * 10**9), attributes)


SELDOM = Row(3, 0, {"x": 9.0, "seldom": 1.0}, late=True)


@pytest.mark.parametrize(
    ("rows", "metric", "expected"),
    [
        pytest.param([Row(0, 0, {"loss": 0.5})], "rl.train.loss", {("total", "actor"): 0.5}, id="a known name"),
        pytest.param([Row(0, 0, {"x": 1.0}), Row(1, 0, {"x": 2.0})], "rl.metric", {("x",): 2.0}, id="any name"),
        pytest.param([Row(0, 0, {"rl.step.energy": 0.25})], "rl.step.energy", {(): 0.25}, id="a name of the registry"),
        pytest.param([Row(0, 0, {"rl.step.energy": 0.25})], "rl.metric", {}, id="which has no other"),
        pytest.param([Row(0, 0, {"x": 0.5}), Row(1, 0, {"x": math.nan})], "rl.metric", {}, id="NaN removes a gauge"),
        pytest.param([Row(1, 0, {"x": math.nan})], "rl.numerics.nonfinite", {("x",): 1}, id="and is counted"),
        pytest.param([Row(7, 0, {"x": 0.5}), SELDOM], "rl.metric", {("x",): 0.5, ("seldom",): 1.0}, id="a late row"),
        pytest.param([Row(7, 0, {"x": 0.5}), SELDOM], "rl.telemetry.late", {(): 2}, id="whose values are counted"),
        pytest.param(
            [Row(7, 0, {"x": 0.5}), Row(2, 0, {"x": 0.25}, attempt=1)], "rl.metric", {("x",): 0.25}, id="a new attempt"
        ),
        pytest.param(
            [Row(10**6, 0, {"x": 9.0}), Row(7, 0, {"x": 0.5})], "rl.metric", {("x",): 0.5}, id="a step by mistake"
        ),
        pytest.param([Row(3, 0, {"x": 1.0}, missing_ranks=(2,))], "rl.telemetry.incomplete", {(): 1}, id="no rank 2"),
    ],
)
def test_rows(rows: list[Row], metric: str, expected: dict[tuple[str, ...], float]) -> None:
    """The latest value of a name shows; that of an earlier step only where no later one has a value."""
    shown, reader = instruments()
    for row in rows:
        shown.show([row])

    assert points(reader, metric) == expected


def test_series_are_bounded_and_what_exceeds_them_is_counted() -> None:
    """The first two thousand series of what is logged are kept."""
    shown, reader = instruments()
    shown.show([Row(0, 0, {f"name/{n}": 1.0 for n in range(2200)})])

    assert len(points(reader, "rl.metric")) == 2000
    assert points(reader, "rl.telemetry.dropped") == {("series_limit",): 200}


def test_what_processes_count() -> None:
    """Refusals add up over attempts: a counter never falls. Allocators count for each device of a rank."""
    shown, reader = instruments()
    again = journal(1, refused=2)
    again.devices = {0: DeviceSeen(0, 0, "GPU-7f", "H200", 1)}
    again.on_devices = {0: DeviceMemory(0, 1, 2, 3, 4, retries=5, ooms=1)}
    shown.show_journals([journal(0, refused=3), again])

    assert points(reader, "rl.telemetry.refused") == {(0, "step"): 5}
    assert points(reader, "rl.device.alloc_retries") == {("GPU-7f", 0): 5}
    assert points(reader, "rl.device.ooms") == {("GPU-7f", 0): 1}


def test_phases_have_their_canonical_names() -> None:
    """The framework's `gen` is `generate`, in spans and in logged values; a logged value comes first."""
    reader = InMemoryMetricReader()
    shown = OtelMetrics(RunInfo("i", "p", "n", "."), [reader], Vocabulary("toyrl"))
    shown.show([Row(0, 0, {"timing_s/gen": 2.0, "time/gen": 1.9, "time/update_actor": 3.0})])
    shown.show_phases([phase(1, "gen")])

    assert points(reader, "rl.phase.time") == {("generate",): 2.0, ("update_actor",): 3.0}
    assert [p.attributes["rl.phase"] for p in data_points(reader, "rl.phase.duration")] == ["generate"]


def test_what_a_source_no_longer_measures_is_no_longer_shown() -> None:
    """A process that ended, a GPU that is not the trainer's any more; counters stay."""
    shown, reader = instruments()
    gpu = (("hw.id", "GPU-1"),)
    shown.show_points("nvml", [Point("hw.gpu.utilization", 0.5, gpu), Point("hw.energy", 7.0, gpu)])
    shown.show_points("host", [Point("system.cpu.utilization", 0.25)])
    before = points(reader, "hw.gpu.utilization")
    shown.show_points("nvml", [])

    assert before == {("GPU-1",): 0.5}
    assert points(reader, "hw.gpu.utilization") == {}
    assert points(reader, "hw.energy") == {("GPU-1",): 7.0}
    assert points(reader, "system.cpu.utilization") == {(): 0.25}


def test_devices_have_their_uuids() -> None:
    """Names in rows have an index; instruments say which device that is."""
    shown, reader = instruments()
    shown.name_devices({"GPU-7f": 3})
    shown.show([Row(0, 0, {"memory/generate/end/onload/allocated/3": 2.0, "memory/device/4/headroom": 1.0})])
    (memory,) = data_points(reader, "rl.device.memory.usage")

    assert (memory.value, memory.attributes["hw.id"]) == (2 * 2**30, "GPU-7f")
    assert points(reader, "rl.device.memory.headroom") == {("4",): 2**30}


def test_phases_of_a_rank_are_one_series_each() -> None:
    """How long it took the last time; the histogram is of all ranks, since it would be nineteen series for each.

    It has an attribute for the clock.
    """
    shown, reader = instruments()
    shown.show_phases([phase(1), phase(2), phase(4, rank=1), phase(0.5, clock="device")])

    assert points(reader, "rl.rank.phase.time") == {("generate", 0): 2.0, ("generate", 1): 4.0}
    found = {
        point.attributes["rl.clock"]: (point.count, point.sum) for point in data_points(reader, "rl.phase.duration")
    }
    assert found == {"host": (3, 7.0), "device": (1, 0.5)}


def test_a_counter_of_lost_ranks_begins_with_0() -> None:
    """Prometheus sees a rise only where there was a value before; processes with a role are counted too."""
    shown, reader = instruments()
    shown.show_processes([journal(0), journal(1), journal(role="reward")])

    assert points(reader, "rl.processes.lost") == {(0,): 0, (0, "reward"): 0}


def test_phases_are_bounded_and_what_exceeds_them_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A phase whose name changes with the step: 200 have series of their own, the others share one; logged once."""
    shown, reader = instruments()
    shown.show_phases([phase(1, f"step {step}") for step in range(500)])

    assert len(data_points(reader, "rl.phase.duration")) == 201
    assert len(points(reader, "rl.rank.phase.time")) == 200
    assert points(reader, "rl.telemetry.dropped") == {("series_limit",): 300}
    assert [record.getMessage()[:36] for record in caplog.records] == ["more than 200 phases and parts of ph"]


def test_a_rank_that_left_has_no_series() -> None:
    """The time of its last step, and of its phases, are not those of a rank; a new attempt of it is."""
    shown, reader = instruments()
    ranks = [journal(rank=0), journal(rank=1)]
    shown.show_phases([phase(1, rank=rank) for rank in (0, 1)])
    shown.show_journals(ranks)
    ranks[1].over = True
    shown.show_journals(ranks)

    assert points(reader, "rl.step.last_completed.timestamp") == {(0,): 5.0}
    assert points(reader, "rl.rank.phase.time") == {("generate", 0): 1.0}
    shown.show_journals([*ranks, journal(attempt=1, rank=1)])
    assert points(reader, "rl.step.last_completed.timestamp") == {(0,): 5.0, (1,): 5.0}


def test_the_last_values_stay_until_the_agent_ends() -> None:
    """When no rank is left, they are those of the run."""
    shown, reader = instruments()
    shown.show_phases([phase(1)])
    one = journal(rank=0)
    one.over = True
    shown.show_journals([one])

    assert points(reader, "rl.step.last_completed.timestamp") == {(0,): 5.0}
    assert points(reader, "rl.rank.phase.time") == {("generate", 0): 1.0}


def test_memory_of_a_process_that_is_over_is_shown_no_longer() -> None:
    """Nobody has it. A reward server that calls itself rank 0 is not the trainer's rank 0."""
    shown, reader = instruments()
    one, other = journal(), journal(role="reward")
    one.resident = other.resident = 100
    shown.show_journals([one, other])
    before = points(reader, "process.memory.usage")
    other.over = True
    shown.show_journals([one, other])

    assert before == {(0,): 100, (0, "reward"): 100}
    assert points(reader, "process.memory.usage") == {(0,): 100}

"""The instruments: what a reader of the SDK sees of rows, phases and processes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_rl.agent.hardware.measurement import Point
from otel_rl.agent.output.otel_metrics import OtelMetrics
from otel_rl.agent.steps.state import Journal
from otel_rl.export import Row, RunInfo, Span
from otel_rl.journal.records import DeviceMemory, DeviceSeen, Started
from otel_rl.semconv.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pytest


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


def test_nan_takes_a_gauge_away_rather_than_freeze_it() -> None:
    """A metric that becomes NaN is no longer exported, and is counted."""
    shown, reader = instruments()
    shown.show([Row(0, 0, {"loss": 0.5, "x": 1.0})])
    before = points(reader, "rl.train.loss"), points(reader, "rl.metric")
    shown.show([Row(1, 0, {"loss": math.nan, "x": 2.0})])

    assert before == ({("total", "actor"): 0.5}, {("x",): 1.0})
    assert points(reader, "rl.train.loss") == {}
    assert points(reader, "rl.metric") == {("x",): 2.0}
    assert points(reader, "rl.numerics.nonfinite") == {("loss",): 1}


def test_a_registered_name_is_its_own_meaning() -> None:
    """A trainer may log under the registry's own names."""
    shown, reader = instruments()
    shown.show([Row(0, 0, {"rl.environment.reward.mean": 0.25})])

    assert points(reader, "rl.environment.reward.mean") == {(): 0.25}
    assert points(reader, "rl.metric") == {}


def test_series_are_bounded_and_what_exceeds_them_is_counted() -> None:
    """The first two thousand series of what is logged are kept."""
    shown, reader = instruments()
    shown.show([Row(0, 0, {f"name/{n}": 1.0 for n in range(2200)})])

    assert len(points(reader, "rl.metric")) == 2000
    assert points(reader, "rl.telemetry.dropped") == {("series_limit",): 200}


def test_refusals_add_up_over_attempts() -> None:
    """A counter never falls because a rank started again."""
    shown, reader = instruments()
    shown.show_journals([journal(0, refused=3), journal(1, refused=2)])

    assert points(reader, "rl.telemetry.refused") == {(0, "step"): 5}


def test_phases_have_their_canonical_names() -> None:
    """The framework's `gen` is `generate`, in spans and in logged values; a logged value comes first."""
    reader = InMemoryMetricReader()
    shown = OtelMetrics(RunInfo("i", "p", "n", "."), [reader], Vocabulary("verl"))
    shown.show([Row(0, 0, {"timing_s/gen": 2.0, "time/gen": 1.9, "time/update_actor": 3.0})])
    shown.show_phases([Span("gen", "", "", "", 0, 10**9, {"rl.phase": "gen", "rl.rank": 0})])

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


def test_retries_of_the_allocator_are_counted() -> None:
    """And requests that it could not serve, for each device of a rank."""
    shown, reader = instruments()
    one = journal()
    one.devices = {0: DeviceSeen(0, 0, "GPU-7f", "H200", 1)}
    one.on_devices = {0: DeviceMemory(0, 1, 2, 3, 4, retries=5, ooms=1)}
    shown.show_journals([one])

    assert points(reader, "rl.device.alloc_retries") == {("GPU-7f", 0): 5}
    assert points(reader, "rl.device.ooms") == {("GPU-7f", 0): 1}


def test_a_phase_has_two_clocks() -> None:
    """One histogram, with an attribute for the clock."""
    shown, reader = instruments()
    on_host = {"rl.phase": "gen", "rl.rank": 0}
    shown.show_phases([Span("gen", "", "", "", 0, 2 * 10**9, on_host)])
    shown.show_phases([Span("gen", "", "", "", 0, 10**9, {**on_host, "rl.clock": "device"})])
    found = {point.attributes["rl.clock"]: point.sum for point in data_points(reader, "rl.phase.duration")}

    assert found == {"host": 2.0, "device": 1.0}


def test_late_and_incomplete_rows_are_counted() -> None:
    """How many values came too late, and how many rows left without a rank."""
    shown, reader = instruments()
    shown.show([Row(3, 0, {"loss": 1.0}, missing_ranks=(2,)), Row(3, 0, {"loss": 1.0, "kl": 2.0}, late=True)])

    assert points(reader, "rl.telemetry.late") == {(): 2}
    assert points(reader, "rl.telemetry.incomplete") == {(): 1}


def test_phases_of_a_rank_are_one_series_each() -> None:
    """How long it took the last time; the histogram is of all ranks, since it would be nineteen series for each."""
    shown, reader = instruments()
    for rank, seconds in ((0, 1), (0, 2), (1, 4)):
        told = {"rl.phase": "generate", "rl.rank": rank}
        shown.show_phases([Span("generate", "", "", "", 0, seconds * 10**9, told)])

    assert points(reader, "rl.rank.phase.time") == {("generate", 0): 2.0, ("generate", 1): 4.0}
    (histogram,) = data_points(reader, "rl.phase.duration")
    assert (histogram.count, histogram.sum) == (3, 7.0)


def test_a_counter_of_lost_ranks_begins_with_0() -> None:
    """Prometheus sees a rise only where there was a value before; processes with a role are counted too."""
    shown, reader = instruments()
    shown.show_processes([journal(0), journal(1), journal(role="reward")])

    assert points(reader, "rl.processes.lost") == {(0,): 0, (0, "reward"): 0}


def test_a_late_row_is_not_the_latest_view() -> None:
    """A value of an earlier step shows only where no later one has; another attempt may begin at an earlier step."""
    shown, reader = instruments()
    shown.show([Row(7, 0, {"x": 0.5}), Row(3, 0, {"x": 9.0, "seldom": 1.0}, late=True)])
    late = points(reader, "rl.metric")
    shown.show([Row(2, 0, {"x": 0.25}, attempt=1)])

    assert late == {("x",): 0.5, ("seldom",): 1.0}
    assert points(reader, "rl.metric")["x",] == 0.25


def test_a_stray_step_does_not_freeze_the_view() -> None:
    """The row of a step that was named by mistake is followed by rows of lower steps."""
    shown, reader = instruments()
    shown.show([Row(1_000_000, 0, {"x": 9.0}), Row(7, 0, {"x": 0.5})])

    assert points(reader, "rl.metric") == {("x",): 0.5}


def test_phases_are_bounded_and_what_exceeds_them_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A phase whose name changes with the step: 200 have series of their own, the others share one; logged once."""
    shown, reader = instruments()
    for step in range(500):
        phase = {"rl.phase": f"step {step}", "rl.rank": 0}
        shown.show_phases([Span("generate", "1" * 32, "1" * 16, "", 0, 10**9, phase)])

    assert len(data_points(reader, "rl.phase.duration")) == 201
    assert len(points(reader, "rl.rank.phase.time")) == 200
    assert points(reader, "rl.telemetry.dropped") == {("series_limit",): 300}
    assert [record.getMessage()[:36] for record in caplog.records] == ["more than 200 phases and parts of ph"]


def test_a_rank_that_left_has_no_series() -> None:
    """The time of its last step, and of its phases, are not those of a rank; a new attempt of it is."""
    shown, reader = instruments()
    ranks = [journal(rank=0), journal(rank=1)]
    for rank in (0, 1):
        told = {"rl.phase": "generate", "rl.rank": rank}
        shown.show_phases([Span("generate", "", "", "", 0, 10**9, told)])
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
    shown.show_phases([Span("generate", "", "", "", 0, 10**9, {"rl.phase": "generate", "rl.rank": 0})])
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

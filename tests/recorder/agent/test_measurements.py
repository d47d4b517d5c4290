"""The way of measurements to instruments and trackers."""

from __future__ import annotations

import pytest

from otel_rl.analysis import Attributes, Measurement, Point
from otel_rl.export import Machine, RunInfo
from otel_rl.recorder.agent.hardware.poller import Poller
from otel_rl.recorder.agent.hardware.processes import TrainerProcess
from otel_rl.recorder.agent.output.measurements import Measurements
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.agent.steps.analyses import none
from otel_rl.recorder.agent.steps.state import Journal, State, of_machine
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import S, started

GIB = 2**30


class Bench:
    """Measurements whose poller returns what a test puts there."""

    def __init__(self, section: str = "hardware") -> None:
        self.poller = Poller(1.0)
        vocabulary = Vocabulary("toyrl")
        analyses = none(State(), vocabulary, Quarantine())
        self.instruments = OtelMetrics(RunInfo("run", "project", "name", "."), [], vocabulary)
        self.measurements = Measurements(self.poller, self.instruments, analyses, 10.0, section)
        self.journals = {"rank0": Journal(started())}

    def collect(self, now: int, *points: Point, probe: str = "host", all_of_it: bool = False) -> list[object]:
        if points:
            self.poller.add(Measurement(probe, now, points))
        return list(self.measurements.collect(self.journals, now, all_of_it=all_of_it))


def test_a_machine_that_measures_nothing(bench: Bench) -> None:
    """To a head it sends an empty measurement every 10 s, as long as its processes live."""
    bench.measurements._sends = True
    found = [one for at in range(25) for one in bench.collect(at * S + 20 * S)]
    bench.journals["rank0"].over = True

    assert found == [Machine(second, second * S, {}) for second in (20, 30, 40)]
    assert bench.collect(100 * S) == []


@pytest.fixture
def bench() -> Bench:
    return Bench()


def gpu(index: int, metric: str, value: float) -> Point:
    return Point(metric, value, (("hw.id", f"GPU-{index}"), ("rl.gpu.index", index)))


def test_trackers_get_names_and_units(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Utilization in percent, memory in GiB, at the whole second since the run began."""
    bench.collect(0)
    found = bench.collect(
        12 * S + 7,
        gpu(1, "hw.gpu.utilization", 0.5),
        gpu(1, "hw.gpu.memory.usage", 3 * GIB),
        Point("system.memory.usage", 8 * GIB, (("system.memory.state", "used"),)),
        Point("system.memory.limit", 16 * GIB),
        Point("system.cpu.utilization", 0.25),
    )

    assert found[0].axis == "hardware/seconds"  # type: ignore[attr-defined]
    assert found == [
        Machine(
            12,
            12 * S + 7,
            {
                "hardware/node.0.gpu.1.util": 50.0,
                "hardware/node.0.gpu.1.mem_gb": 3.0,
                "hardware/node.0.mem_gb": 8.0,
                "hardware/node.0.mem_total_gb": 16.0,
            },
        )
    ]


def test_nemo_rls_names() -> None:
    """Its users, and SkyRL's, find measurements where the framework has them."""
    bench = Bench("ray")
    bench.collect(0)
    (found,) = bench.collect(12 * S, gpu(1, "hw.gpu.utilization", 0.5))

    assert isinstance(found, Machine)
    assert (found.values, found.axis) == ({"ray/node.0.gpu.1.util": 50.0}, "ray/ray_step")


def test_only_processes_of_this_machine_are_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other machines are measured there, even if this machine has their process ids too."""
    watched: list[list[TrainerProcess]] = []
    monkeypatch.setattr(bench.poller, "watch", watched.append)
    bench.journals[of_machine("rank1", "other")] = Journal(started(rank=1))
    bench.collect(10 * S)

    assert [one.rank for (one,) in watched] == [0]


def test_what_was_measured_in_one_second_is_one_row(bench: Bench) -> None:
    """However many GPUs there are, each with a thread of its own."""
    bench.poller.add(Measurement("nvml/0", 5 * S, (gpu(0, "hw.gpu.utilization", 0.1),)))
    bench.poller.add(Measurement("nvml/1", 5 * S + 9, (gpu(1, "hw.gpu.utilization", 0.2),)))
    (row,) = bench.collect(20 * S)

    assert isinstance(row, Machine)
    assert row.values == {"hardware/node.0.gpu.0.util": 10.0, "hardware/node.0.gpu.1.util": 20.0}


def test_rows_leave_at_the_flush_interval(bench: Bench) -> None:
    """And at the end all that is left."""
    point = Point("system.memory.limit", 16 * GIB)
    left = [bench.collect(n * S, point) for n in range(10, 25)]
    at_the_end = bench.collect(25 * S, point, all_of_it=True)

    assert [len(rows) for rows in left] == [1, *[0] * 9, 10, *[0] * 4]
    assert len(at_the_end) == 5


def test_a_part_of_a_gpu_has_no_name_there(bench: Bench) -> None:
    """NeMo-RL's names have no place for MIG devices; the instruments have."""
    mig: Attributes = (("hw.id", "MIG-1"), ("rl.gpu.index", 0), ("hw.parent", "GPU-0"))

    assert bench.collect(20 * S, Point("hw.gpu.memory.usage", GIB, mig)) == []


def test_the_node_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number, not by the order in which nodes are seen."""
    monkeypatch.setenv("GROUP_RANK", "3")
    (row,) = Bench().collect(20 * S, Point("system.memory.limit", 16 * GIB))

    assert list(row.values) == ["hardware/node.3.mem_total_gb"]  # type: ignore[attr-defined]

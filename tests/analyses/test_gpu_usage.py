"""Idleness of GPUs by phase, energy by step and token."""

from __future__ import annotations

import pytest

from otel_rl.analyses.gpu_usage import GpuUsage
from otel_rl.analysis import Measurement, Point


def of(device: str, **values: float) -> Measurement:
    """Return a measurement of a device; `__` in a name is a dot."""
    points = [Point(name.replace("__", "."), value, (("hw.id", device),)) for name, value in values.items()]
    return Measurement(f"nvml/{device}", 1, tuple(points))


def test_idleness_is_that_of_the_phase_at_the_time() -> None:
    """Mean over the measurements of each phase; measurements outside of any phase do not count."""
    usage = GpuUsage()
    for utilisation, phase in ((0.9, "train"), (0.2, "generate"), (0.7, "train"), (0.0, "")):
        usage.measured(of("GPU-1", hw__gpu__utilization=utilisation), lambda device, phase=phase: phase)
    found = {dict(point.attributes)["rl.phase"]: point.value for point in usage.idle()}

    assert found == {"train": pytest.approx(0.2), "generate": pytest.approx(0.8)}


def test_a_lost_gpu_is_not_idle() -> None:
    """It is not measured any more; another one is."""
    usage = GpuUsage()
    for device in ("GPU-1", "GPU-2"):
        usage.measured(of(device, hw__gpu__utilization=0.5), lambda device: "train")
    usage.measured(of("GPU-1"), lambda device: "train")

    assert [dict(point.attributes)["hw.id"] for point in usage.idle()] == ["GPU-2"]


def test_idleness_forgets() -> None:
    """The last thirty measurements of a phase count."""
    usage = GpuUsage()
    for n in range(60):
        usage.measured(of("GPU-1", hw__gpu__utilization=0.0 if n < 30 else 1.0), lambda device: "train")

    assert [point.value for point in usage.idle()] == [0.0]


def test_energy_of_a_step_and_of_a_token() -> None:
    """Energy of all GPUs, over the steps that ended meanwhile."""
    usage = GpuUsage()
    for device in ("GPU-1", "GPU-2"):
        usage.measured(of(device, hw__energy=1000.0), lambda device: "")
    before = usage.energy()
    for _ in range(4):
        usage.step_ended(50)
    for device in ("GPU-1", "GPU-2"):
        usage.measured(of(device, hw__energy=1600.0), lambda device: "")
    found = {point.metric: point.value for point in usage.energy()}

    assert before == []
    assert found == {"rl.step.energy": 300.0, "rl.token.energy": 6.0}


def test_a_long_step_is_not_told_before_it_ends() -> None:
    """Its energy is that of all measurements in it."""
    usage = GpuUsage()
    for joules in (100.0, 200.0, 300.0):
        usage.measured(of("GPU-1", hw__energy=joules), lambda device: "")
        assert usage.energy() == []
    usage.step_ended(0)

    assert usage.energy() == [Point("rl.step.energy", 200.0)]

"""GPUs by NVML, whose library is a stand-in compiled here: no GPU is needed, and its numbers are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_rl.semconv import registry
from tests.real_parts import needs_program
from tests.recorder.agent.hardware import standin

pytestmark = needs_program("gcc")

GIB = 2.0**30
GPUS = [f"GPU-0000000{n}-aaaa" for n in range(4)]
MIG = "MIG-00000001-aaaa"


def nvml(*numbers: int) -> dict[str, int]:
    return {f"nvml/{GPUS[n]}": 1 for n in numbers}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.build(tmp_path_factory.mktemp("nvml"))


def test_every_gpu_with_its_numbers(library: Path, tmp_path: Path) -> None:
    """In the units of the registry; the throughput of PCIe was asked for."""
    found = standin.measure(library, "gpus=3", tmp_path, times=nvml(0, 1, 2), io=True)

    assert found.gpus == GPUS[:3]
    assert found.of(f"nvml/{GPUS[2]}") == {
        "hw.gpu.memory.usage": 3 * GIB,
        "hw.gpu.memory.limit": 80 * GIB,
        "hw.gpu.memory.utilization": 3 / 80,
        "hw.gpu.utilization": 0.52,
        "hw.power": 300.502,
        "hw.energy": 123456789.014,
        "hw.temperature": 63,
        "rl.gpu.clock.frequency sm": 1.98e9,
        "rl.gpu.clock.frequency memory": 2.619e9,
        "rl.gpu.throttle sw_power_cap": 1,
        "rl.gpu.throttle hw_slowdown": 0,
        "rl.gpu.throttle sync_boost": 0,
        "rl.gpu.throttle sw_thermal_slowdown": 0,
        "rl.gpu.throttle hw_thermal_slowdown": 1,
        "rl.gpu.throttle hw_power_brake": 0,
        "rl.gpu.io.rate receive": 7e6,
        "rl.gpu.io.rate transmit": 5e6,
        "hw.errors corrected": 4,
        "hw.errors uncorrected": 1,
    }
    assert found.failures == []


def test_attributes_are_declared(library: Path, tmp_path: Path) -> None:
    """Each metric of each probe, of the host too, has no attribute that the registry does not give it."""
    times = {**nvml(0), "host": 2, "processes": 2}
    found = standin.measure(library, "gpus=1;xid=79", tmp_path, times=times, io=True, visible=["0"])
    points = [(metric, told) for seen in found.seen.values() for metric, _, told in seen]

    assert len({metric for metric, _ in points}) > 20
    assert [(m, told) for m, told in points if not set(told) <= set(registry.metrics()[m].attribute_names)] == []


def test_a_mig_device_is_one_of_its_own(library: Path, tmp_path: Path) -> None:
    """It has memory, names its GPU, and has no utilization."""
    found = standin.measure(library, "gpus=2;mig=1", tmp_path, times={f"nvml/{MIG}": 1, **nvml(0, 1)})

    assert found.of(f"nvml/{MIG}") == {
        f"hw.gpu.memory.usage {GPUS[1]}": 2 * GIB,
        f"hw.gpu.memory.limit {GPUS[1]}": 10 * GIB,
        f"hw.gpu.memory.utilization {GPUS[1]}": 0.2,
    }
    assert found.failures == []


def test_what_is_not_supported_is_left_out(library: Path, tmp_path: Path) -> None:
    """Silently; the rest is there."""
    found = standin.measure(library, "unsupported=power;unsupported=ecc;unsupported=events", tmp_path, times=nvml(0))
    names = found.of(f"nvml/{GPUS[0]}")

    assert "hw.energy" in names
    assert not {"hw.power", "hw.errors corrected"} & names.keys()
    assert found.failures == []


def test_an_older_library_lacks_functions(tmp_path: Path) -> None:
    """A function that it does not have is as one that is not supported."""
    library = standin.build(tmp_path, "-DOLD")
    found = standin.measure(library, "gpus=1", tmp_path, times=nvml(0))
    names = found.of(f"nvml/{GPUS[0]}")

    assert "hw.power" in names
    assert "hw.errors corrected" not in names
    assert found.failures == []


def test_a_call_that_hangs_holds_up_its_gpu_alone(library: Path, tmp_path: Path) -> None:
    """The others and the host are measured again and again, and the one that hangs is counted."""
    hanging = (f"nvml/{GPUS[1]}", "timeout")
    times = {**dict.fromkeys(nvml(0, 2), 3), "host": 3}
    found = standin.measure(library, "gpus=3;hang=1", tmp_path, times=times, failures=[hanging])

    assert found.gpus == [GPUS[0], GPUS[2]]
    assert {(probe, reason) for probe, reason, _ in found.failures} == {hanging}


def test_a_gpu_that_falls_off_the_bus(library: Path, tmp_path: Path) -> None:
    """It is counted, and the others go on."""
    lost = (f"nvml/{GPUS[1]}", "NVMLError_GpuIsLost")
    times = {**dict.fromkeys(nvml(0, 2), 3), f"nvml/{GPUS[1]}": 1}
    found = standin.measure(library, "gpus=3;lost=1;lost_after=1", tmp_path, times=times, failures=[lost])

    assert found.gpus == GPUS[:3]
    assert {(probe, reason) for probe, reason, _ in found.failures} == {lost}


def test_xid_errors_are_counted(library: Path, tmp_path: Path) -> None:
    """By their number, as often as the driver reported them."""
    found = standin.measure(library, "xid=79", tmp_path, times=nvml(0))

    assert found.of(f"nvml/{GPUS[0]}")["hw.errors xid_79"] == 2


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ([None], [0, 1, 2, 3]),
        (["2"], [2]),
        (["0", "3"], [0, 3]),
        (["1,2", "2"], [1, 2]),
        ([GPUS[3]], [3]),
        (["GPU-00000002,1"], [1, 2]),
        (["1,-1,2"], [1]),
        (["1,9,2"], [1]),
        ([None, "2"], [0, 1, 2, 3]),
        ([""], [0, 1, 2, 3]),
        ([], [0, 1, 2, 3]),
    ],
)
def test_gpus_that_the_trainers_see(
    visible: list[str | None], expected: list[int], library: Path, tmp_path: Path
) -> None:
    """`CUDA_VISIBLE_DEVICES` of all processes together; GPUs of other programs are left out."""
    found = standin.measure(library, "gpus=4", tmp_path, times={**nvml(*expected), "host": 1}, visible=visible)

    assert found.gpus == [GPUS[n] for n in expected]


def test_two_processes_on_one_gpu(library: Path, tmp_path: Path) -> None:
    """The GPU is measured once, the processes each."""
    found = standin.measure(library, "gpus=1", tmp_path, times={**nvml(0), "processes": 1}, visible=["0", "0"])
    utilisation = [told for metric, _, told in found.seen[f"nvml/{GPUS[0]}"] if metric == "hw.gpu.utilization"]
    memory = [told["rl.rank"] for metric, _, told in found.seen["processes"] if metric == "process.memory.usage"]

    assert len(utilisation) == 1
    assert memory == [0, 1]


def test_without_a_driver_there_is_nothing(tmp_path: Path) -> None:
    """No GPU and no failure."""
    found = standin.measure(None, "", tmp_path, times={"host": 2})

    assert found.gpus == []
    assert found.failures == []

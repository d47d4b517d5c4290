"""Hardware measurements, in every tracker next to the training, and on the metrics endpoint."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.collector import free_port, wait_for
from tests.exporters import wandb_file
from tests.exporters.trackers import MLFLOW, SINGLE, SWANLAB, TRACKIO, WANDB, Tracker, accumulator, bits
from tests.processes import rows_of, start_python
from tests.real_parts import needs, needs_program
from tests.recorder.agent.hardware import standin

pytestmark = [
    *(needs(name) for name in ("mlflow", "swanlab", "trackio", "tensorboard", "wandb")),
    needs_program("gcc"),
    pytest.mark.timeout(300),
    pytest.mark.slow,
]
STEPS = 12
GPU = "hardware/node.0.gpu.0.util"
_RANK = """
import os, time, otel_rl
os.environ["OTEL_RL_LOCAL_WORLD_SIZE"] = "2"
run = otel_rl.init(
    dir=".", id="run-7", rank=RANK, world_size=2, quiet=True,
    exporters=["jsonl", "tensorboard", "wandb", "mlflow", "swanlab", "trackio"],
    hardware={"interval": 1, "flush_interval": 2},
)
print(run.dir, run.prometheus, flush=True)
for n in range(STEPS):
    with run.step(n):
        time.sleep(0.3)
        run.log({"loss": 1 / (n + 1)})
while not os.path.exists("done"):
    time.sleep(0.05)
print(bool(run.finish(120)), flush=True)
"""


class Seen:
    """A run of two ranks on one GPU, and the page that Prometheus reads, before its end."""

    def __init__(self, run_dir: Path, page: str) -> None:
        self.dir = run_dir
        self.page = page
        lines = (run_dir / "machine.jsonl").read_text().splitlines()
        self.machine: list[dict[str, Any]] = [json.loads(line) for line in lines]

    @property
    def positions(self) -> list[int]:
        """The seconds at which the GPU was measured."""
        return [line["hardware/seconds"] for line in self.machine if GPU in line["values"]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    directory = tmp_path_factory.mktemp("machine")
    library = standin.build(directory)
    environment = {"LD_LIBRARY_PATH": str(library), "NVML_STANDIN": "gpus=1", "WANDB_MODE": "offline"}
    environment |= {
        "SWANLAB_MODE": "offline",
        "CUDA_VISIBLE_DEVICES": "0",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(free_port()),
    }
    scripts = [f"RANK, STEPS = {rank}, {STEPS}\n{_RANK}" for rank in range(2)]
    ranks = [start_python(script, directory, **environment) for script in scripts]
    told = [process.stdout.readline().split() for process in ranks]  # type: ignore[union-attr]
    assert all(told), [process.communicate()[1] for process in ranks]
    run_dir, address = Path(directory, told[0][0]), told[0][1]

    def page() -> str:
        return str(urllib.request.urlopen(address, timeout=5).read().decode())

    try:
        wait_for(lambda: len(rows_of(run_dir)) >= STEPS - 1, "the steps are not done", 60)
        wait_for(lambda: page().count("process_cpu_utilization{") >= 2, "the processes were not measured", 60)
        text = page()
    finally:
        (directory / "done").touch()
    for process in ranks:
        assert process.communicate(timeout=200)[0].split()[-1:] == ["True"], (run_dir / "agent.log").read_text()
    return Seen(run_dir, text)


def test_two_ranks_on_one_gpu(seen: Seen) -> None:
    """The GPU is there once, the processes each."""
    lines = seen.page.splitlines()

    assert len([line for line in lines if line.startswith("hw_gpu_utilization{")]) == 1
    assert len([line for line in lines if line.startswith("process_cpu_time_seconds_total{")]) == 2
    assert len([line for line in lines if line.startswith("rl_process_count{")]) == 2


def test_the_training_axis_has_its_steps_alone(seen: Seen) -> None:
    """Whatever was measured in between."""
    assert [row["step"] for row in rows_of(seen.dir)] == list(range(STEPS))
    assert len(seen.positions) >= 2
    assert not any(name.startswith("hardware/") for row in rows_of(seen.dir) for name in row["values"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("tracker", [SINGLE, WANDB, MLFLOW, SWANLAB, TRACKIO], ids=lambda one: one.exporter)
def test_its_curve(tracker: Tracker, seen: Seen) -> None:
    """The GPU has an axis in seconds, and the loss has one in steps."""
    points = tracker.points(seen.dir, GPU, "loss")

    assert points[GPU] == [(at, bits(tracker.value(50.0))) for at in seen.positions]
    assert [step for step, _ in points["loss"]] == list(range(STEPS))


def test_tensorboard(seen: Seen) -> None:
    """It is another run there."""
    assert GPU in accumulator(seen.dir / "tensorboard" / "machine").Tags()["scalars"]
    assert GPU not in accumulator(seen.dir / "tensorboard").Tags()["scalars"]


def test_wandb(seen: Seen) -> None:
    """Measurements have their own axis, and no row has both."""
    wandb_file.wait_until_written(str(seen.dir))
    (path,) = wandb_file.files(str(seen.dir))
    rows = wandb_file.history(path)
    axes = {
        record.metric.name: record.metric.step_metric
        for record in wandb_file.records(path)
        if record.WhichOneof("record_type") == "metric"
    }

    assert not any("step" in row for row in rows if GPU in row)
    assert axes[GPU] == "hardware/seconds"

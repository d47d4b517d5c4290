"""The trainer's own run in a tracker gets what was measured, and keeps what it had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from otel_rl.export import Params, Row, RunInfo
from otel_rl_exporters import attached
from tests.exporters import swanlab_file, wandb_file
from tests.processes import run_python, start_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeout(200), pytest.mark.slow]
_WANDB = """
import os, time, wandb
wandb.init(project="p", mode="offline", dir=os.getcwd())
if OURS:
    import otel_rl
    run = otel_rl.init(dir=".", project="p", exporters=[{"wandb": {"attach": True}}], quiet=True, hardware=False)
for n in range(20):
    if OURS:
        with run.step(n), run.phase("generate"):
            time.sleep(0.01)
        run.log({"loss": 1 / (n + 1)})
    wandb.log({"loss": 1 / (n + 1)}, **({"step": 3 * n} if STEPS else {}))
    time.sleep(0.05)
if OURS:
    print(run.finish(60))
wandb.finish()
"""
_QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
_OWN = ("otel_rl/", "_timestamp", "_runtime")


def history(directory: Path, *, ours: bool, steps: bool) -> list[dict[str, Any]]:
    """Return W&B's own rows of a training."""
    directory.mkdir()
    output = run_python(_WANDB.replace("OURS", str(ours)).replace("STEPS", str(steps)), directory, **_QUIET)
    assert output.split()[-1:] == (["True"] if ours else [])
    wandb_file.wait_until_written(str(directory))
    (file,) = wandb_file.files(str(directory))
    return [{name: json.loads(text) for name, text in row.items()} for row in wandb_file.history(file)]


@needs("wandb")
@pytest.mark.parametrize("steps", [False, True], ids=["counted", "given"])
def test_wandb(steps: bool, tmp_path: Path) -> None:
    """The trainer's rows and steps are unchanged. otel-rl's rows are there once, in order, on their own axis."""
    with_us = history(tmp_path / "with", ours=True, steps=steps)
    without = history(tmp_path / "without", ours=False, steps=steps)
    theirs = [{name: value for name, value in row.items() if not name.startswith(_OWN)} for row in with_us]
    ours = [row for row in with_us if "otel_rl/step" in row]

    assert [row for row in theirs if "loss" in row] == without_times(without)
    assert [row["otel_rl/step"] for row in ours] == list(range(20))
    assert all(0.01 <= row["otel_rl/time/generate"] < 1 for row in ours)
    assert not any("otel_rl/loss" in row for row in ours)


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith(_OWN)} for row in rows]


_MLFLOW = """
import mlflow, otel_rl
mlflow.set_tracking_uri("sqlite:///ml.db")
with mlflow.start_run() as active:
    run = otel_rl.init(dir=".", project="p", exporters=[{"mlflow": {"attach": True}}], quiet=True, hardware=False)
    for n in range(10):
        with run.step(n), run.phase("generate"):
            run.log({"loss": 1 / (n + 1)})
        mlflow.log_metric("loss", 1 / (n + 1), step=n)
    print(run.finish(60))
client = mlflow.MlflowClient()
for name in ("loss", "otel_rl/time/generate"):
    print([metric.step for metric in client.get_metric_history(active.info.run_id, name)] == list(range(10)))
print("otel_rl/loss" in client.get_run(active.info.run_id).data.metrics)
"""


@needs("mlflow")
def test_mlflow(tmp_path: Path) -> None:
    """Each value has its step."""
    assert run_python(_MLFLOW, tmp_path, MLFLOW_DISABLE_TELEMETRY="true").split() == ["True", "True", "True", "False"]


_SWANLAB = """
import time, swanlab
swanlab.init(project="p", mode="offline", logdir="swanlab")
if OURS:
    import otel_rl
    run = otel_rl.init(dir=".", project="p", exporters=[{"swanlab": {"attach": True}}], quiet=True, hardware=False)
for n in range(20):
    if OURS:
        with run.step(n), run.phase("generate"):
            time.sleep(0.01)
        run.log({"loss": 1 / (n + 1)})
    swanlab.log({"loss": 1 / (n + 1)}, **({"step": 3 * n} if STEPS else {}))
    time.sleep(0.05)
if OURS:
    print("DELIVERED", run.finish(60))
swanlab.finish()
"""


def points(directory: Path, *, ours: bool, steps: bool) -> dict[str, list[tuple[int, float]]]:
    """Return what is in SwanLab's own files of a training, name by name."""
    directory.mkdir()
    output = run_python(_SWANLAB.replace("OURS", str(ours)).replace("STEPS", str(steps)), directory)
    assert ("DELIVERED True" in output) == ours
    found: dict[str, list[tuple[int, float]]] = {}
    for record in swanlab_file.records(directory):
        if record.WhichOneof("record_type") == "scalar":
            found.setdefault(record.scalar.key, []).append((record.scalar.step, record.scalar.value.number))
    return found


@needs("swanlab")
@pytest.mark.parametrize("steps", [False, True], ids=["counted", "given"])
def test_swanlab(steps: bool, tmp_path: Path) -> None:
    """The trainer's points are unchanged. otel-rl's points are there once, in order, at otel-rl's steps."""
    with_us = points(tmp_path / "with", ours=True, steps=steps)
    without = points(tmp_path / "without", ours=False, steps=steps)

    assert with_us["loss"] == without["loss"]
    assert [step for step, _ in with_us["otel_rl/time/generate"]] == list(range(20))
    assert "otel_rl/loss" not in with_us


def measured(count: int) -> list[Row]:
    """Return rows with one measured value each."""
    return [Row(n, n, {"a": 1.0}, measured=("a",)) for n in range(count)]


@needs("wandb")
def test_wandb_waits_for_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is safe once the trainer has logged the history row that it is in; the others go on waiting."""
    import wandb

    monkeypatch.setattr(attached, "_LOOK_S", 0.0)
    theirs = wandb.init(project="p", mode="offline", dir=str(tmp_path), reinit="create_new")
    exporter = attached.AttachedWandb(RunInfo("i", "p", "n", str(tmp_path)), active=theirs)
    exporter.export([Params(0, {})])
    for row in measured(3):
        exporter.export([row])
    safe = [exporter.durable()]
    for n in range(2):
        theirs.log({"loss": n})
        safe.append(exporter.durable())
    exporter.shutdown()
    safe.append(exporter.durable())
    theirs.finish()
    wandb_file.wait_until_written(str(tmp_path))
    (file,) = wandb_file.files(str(tmp_path))

    assert safe == [1, 2, 3, 4]
    steps = [json.loads(row["otel_rl/step"]) for row in wandb_file.history(file) if "otel_rl/step" in row]
    assert steps == [0, 1, 2]


@needs("swanlab")
def test_swanlab_waits_for_the_trainer(tmp_path: Path) -> None:
    """A row is safe once the trainer has come to its step; those behind it at the end."""
    import swanlab

    theirs = swanlab.init(project="p", mode="offline", logdir=str(tmp_path / "swanlab"), reinit=True)
    exporter = attached.AttachedSwanlab(RunInfo("i", "p", "n", str(tmp_path)), active=theirs)
    exporter.export([Params(0, {})])
    for row in measured(3):
        exporter.export([row])
    safe = [exporter.durable()]
    for n in range(2):
        theirs.log({"loss": n})
        safe.append(exporter.durable())
    exporter.shutdown()
    safe.append(exporter.durable())
    theirs.finish()
    found = [one.scalar for one in swanlab_file.records(tmp_path) if one.WhichOneof("record_type") == "scalar"]

    assert safe == [1, 2, 3, 4]
    assert [one.step for one in found if one.key == "otel_rl/a"] == [0, 1, 2]


def test_a_tracker_that_cannot_be_attached_to(tmp_path: Path) -> None:
    """It fails at the beginning."""
    script = 'import otel_rl; otel_rl.init(exporters=[{"jsonl": {"attach": True}}])'

    assert "unknown exporter 'jsonl_attached'" in start_python(script, tmp_path).communicate(timeout=60)[1]


@needs("wandb")
def test_nothing_to_attach_to(tmp_path: Path) -> None:
    """`init` raises an error that names the fix."""
    script = 'import otel_rl; otel_rl.init(exporters=[{"wandb": {"attach": True}}])'

    assert "call wandb.init() before" in start_python(script, tmp_path).communicate(timeout=60)[1]

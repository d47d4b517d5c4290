"""Values that trainers log to trackers themselves, recorded too."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otel_rl.frameworks.capture import patch_skrl
from otel_rl.frameworks.patches import Patches
from otel_rl.frameworks.tracker import Tracker
from otel_rl.frameworks.verbs.run import _isolating
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.records import Logged
from otel_rl.recorder.trainer.current import recorder_of
from otel_rl.recorder.trainer.run import Run
from tests.collector import wait_for
from tests.exporters import wandb_file
from tests.processes import rows_of, run, start
from tests.real_parts import needs
from tests.recorder.trainer.reading import RecordsOf, refusals

pytestmark = pytest.mark.timeout(200)
_TRAINERS = {
    "wandb": """
import os, wandb
run = wandb.init(project="p", mode="offline", dir=os.getcwd())
for n in range(10):
    run.log({"loss": 1 / (n + 1), "note": "text", "picture": [1, 2]}, step=n * 2)
run.log({"actor": {"kl": {"mean": 0.5}, "note": "text"}, "is_last": True}, step=18)
wandb.log({"acc": 0.5}, commit=False)
wandb.log({"val": 0.25})
wandb.log({"train/global_step": 100, "kl": 0.125})
wandb.finish()
""",
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
import torch
writer = SummaryWriter("tb")
for n in range(10):
    writer.add_scalar("loss", torch.tensor(1 / (n + 1), dtype=torch.float64), n * 2)
writer.add_scalars("eval", {"acc": 0.5, "val": 0.25}, global_step=18)
writer.add_text("note", "text")
writer.close()
""",
    "mlflow": """
import mlflow
mlflow.set_tracking_uri("sqlite:///ml.db")
with mlflow.start_run():
    for n in range(10):
        mlflow.log_metric("loss", 1 / (n + 1), step=n * 2)
    mlflow.log_metrics({"acc": 0.5, "val": 0.25}, step=18)
    mlflow.log_param("lr", 0.1)
""",
    "swanlab": """
import swanlab
swanlab.init(project="p", mode="offline", log_dir="swan")
for n in range(10):
    swanlab.log({"loss": 1 / (n + 1)}, step=n * 2)
swanlab.log({"acc": 0.5, "val": 0.25, "actor": {"kl": {"mean": 0.5}}})
swanlab.finish()
""",
    "trackio": """
import trackio
run = trackio.init(project="p", auto_log_gpu=False)
for n in range(10):
    trackio.log({"loss": 1 / (n + 1)}, step=n * 2)
trackio.log({"acc": 0.5, "val": 0.25, "actor": {"kl": {"mean": 0.5}}})
trackio.finish()
""",
}
_QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


def train(directory: Path, tracker: str, *launcher: str, **environment: str) -> str:
    """Run the trainer of a tracker."""
    told = {"OTEL_RL_RUN_ID": "captured", "OTEL_RL_PROJECT": "p", "OTEL_RL_HARDWARE": "false", **_QUIET}
    return run([*launcher, sys.executable, "-c", _TRAINERS[tracker]], directory, **told, **environment)


def captured(directory: Path, tracker: str, **environment: str) -> dict[int, Any]:
    """Return the values of each step that were recorded."""
    train(directory, tracker, sys.executable, "-m", "otel_rl.cli", "run", "--capture", tracker, "--", **environment)
    (run_dir,) = (directory / "runs" / "p").glob("*captured")  # behind the name that the tracker has
    wait_for(lambda: agent_start.read_status(directories.at(run_dir)).state == "ended", "the agent does not end")
    return {int(str(row["step"])): row["values"] for row in rows_of(run_dir)}


@pytest.mark.slow
@pytest.mark.parametrize("tracker", [pytest.param(name, marks=needs(name)) for name in _TRAINERS])
def test_captured(tracker: str, tmp_path: Path) -> None:
    """At the steps that the tracker has, under its names, bit for bit."""
    rows = captured(tmp_path, tracker)
    last = {"wandb": (18, 18), "tensorboard": (18, 18), "mlflow": (18, 18), "swanlab": (19, 19), "trackio": (19, 19)}[
        tracker
    ]
    names = ("eval/acc", "eval/val") if tracker == "tensorboard" else ("acc", "val")

    assert [rows[n * 2]["loss"] for n in range(10)] == [1 / (n + 1) for n in range(10)]
    assert [rows[step][name] for step, name in zip(last, names, strict=True)] == [0.5, 0.25]
    nested = dict.fromkeys(("swanlab", "trackio"), ("actor/kl/mean",))
    more = (nested | {"wandb": ("kl", "actor.kl.mean", "is_last")}).get(tracker, ())
    assert {name for row in rows.values() for name in row} == {"loss", *names, *more}
    assert tracker != "wandb" or rows[100] == {"kl": 0.125}
    assert tracker != "wandb" or (rows[18]["actor.kl.mean"], rows[18]["is_last"]) == (0.5, 1)


@pytest.mark.slow
@needs("wandb")
def test_the_tracker_gets_what_it_was_given(tmp_path: Path) -> None:
    """W&B's own file holds the same rows, by its own rules of steps, with and without us."""
    found = []
    for name in ("with", "without"):
        place = tmp_path / name
        place.mkdir()
        captured(place, "wandb") if name == "with" else train(place, "wandb")
        wandb_file.wait_until_written(str(place))
        (file,) = wandb_file.files(str(place))
        timeless = ("_timestamp", "_runtime")
        found.append([{k: v for k, v in line.items() if k not in timeless} for line in wandb_file.history(file)])

    assert found[0] == found[1]
    assert json.loads(found[0][0]["loss"]) == 1.0


_SYNCED = """
import os, wandb
from torch.utils.tensorboard import SummaryWriter
wandb.init(project="p", mode="offline", dir=os.getcwd(), sync_tensorboard=True)
writer = SummaryWriter("tb")
writer.add_scalar("loss", 0.5, 7)
writer.close()
wandb.finish()
"""


@pytest.mark.slow
@needs("wandb")
@needs("tensorboard")
def test_wandb_that_reads_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sync_tensorboard=True`: what the script gives to TensorBoard is in W&B, and is captured."""
    monkeypatch.setitem(_TRAINERS, "wandb", _SYNCED)

    assert captured(tmp_path, "wandb") == {7: {"loss": 0.5}}


@pytest.mark.slow
@needs("tensorboard")
def test_what_fails_with_us_does_not_fail_with_the_tracker(tmp_path: Path) -> None:
    """A wrong setting is reported once. The trainer continues."""
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--capture", "tensorboard", "--", sys.executable, "-c"]
    process = start([*command, _TRAINERS["tensorboard"]], tmp_path, OTEL_RL_DIALECT="none of them")
    _, errors = process.communicate(timeout=120)

    assert process.returncode == 0
    assert errors.count("none of them") == errors.count("SettingsError: ") + 1 == 2
    assert list((tmp_path / "tb").iterdir())


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (np.array([1.5]), 1.5),
        (np.array([[1.5]]), 1.5),
        (np.float32(1.5), 1.5),
        (torch.tensor([1.5], requires_grad=True), 1.5),
        (torch.ones(1, 1, dtype=torch.bfloat16), 1.0),
        (np.array([True]), 1),
        (torch.tensor(False), 0),
        (True, 1),
        (Decimal("1.5"), 1.5),
    ],
    ids=repr,
)
def test_what_trackers_chart_is_recorded(value: object, number: float, recording: Run, records_of: RecordsOf) -> None:
    """Whatever has one element, and truth values."""
    tracked = Tracker("tensorboard")
    tracked.record(tracked.run("a run"), {"x": value}, 3)

    assert [(one.step, one.values) for one in records_of(recording) if isinstance(one, Logged)] == [(3, {"x": number})]


@pytest.mark.parametrize("tracker", ["mlflow", "swanlab", "tensorboard", "trackio"])
def test_nested_values(tracker: str, recording: Run, records_of: RecordsOf) -> None:
    """Their names are joined with a slash, as `Run.log` does, also of trackers that do not chart them."""
    tracked = Tracker(tracker)
    tracked.record(tracked.run("a run"), {"actor": Counter({"eos": 2})}, 3)

    assert [one.values for one in records_of(recording) if isinstance(one, Logged)] == [{"actor/eos": 2}]


def test_the_writer_of_skrl(recording: Run, records_of: RecordsOf) -> None:
    """It has names of its own: `tag`, `value`, `timestep`, of `skrl/utils/tensorboard.py` of 2.1.1."""

    class SummaryWriter:
        def add_scalar(self, *, tag: str, value: float, timestep: int) -> None:
            """Write a value."""

    module = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    patch_skrl(module, Patches())
    module.SummaryWriter().add_scalar(tag="Loss / Policy loss", value=np.float32(0.5), timestep=64)

    (logged,) = [one for one in records_of(recording) if isinstance(one, Logged)]
    assert (logged.step, logged.values) == (64, {"Loss / Policy loss": 0.5})


def test_the_rest_is_counted(recording: Run, records_of: RecordsOf, caplog: pytest.LogCaptureFixture) -> None:
    """Its name is logged, its neighbors are recorded, and the run is complete without it."""
    others = {
        "text": "1.5",
        "none": None,
        "list": [1.5],
        "array": np.ones(2),
        "empty": torch.ones(0),
        "table": object(),
    }
    tracked = Tracker("wandb")
    tracked.record(tracked.run("a run"), {"loss": 1.0} | others, 3)

    assert refusals(records_of(recording)) == {"not_captured": len(others)}
    assert "text: --capture wandb records numbers, not a str" in caplog.text
    assert recorder_of(recording).unwritten == ""


@pytest.mark.parametrize("option", ["--capture=clearml", "--instrument=keras"])
def test_a_wrong_name(option: str, tmp_path: Path) -> None:
    """It fails before the trainer begins."""
    process = start([sys.executable, "-m", "otel_rl.cli", "run", option, "--", "true"], tmp_path)

    assert "must be one of" in process.communicate(timeout=60)[1]
    assert process.returncode == 2


def test_a_python_that_ignores_its_environment(tmp_path: Path) -> None:
    """A line says that the hooks cannot be imported, and the trainer runs."""
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-I", "-c", "print('trainer')"]
    output, errors = start(command, tmp_path).communicate(timeout=60)

    assert "otel-rl: nothing is recorded: with -I, Python ignores PYTHONPATH" in errors
    assert output == "trainer\n"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("python3.11 -W ignore -uE train.py", "-uE"),
        ("torchrun --nproc-per-node 2 train.py -I", ""),
        ("nice /usr/bin/python -S -m train", "-S"),
        ("python -WI -u train.py -I", ""),
        ("python -c -I", ""),
    ],
)
def test_options_that_ignore_the_environment(command: str, option: str) -> None:
    """Those of Python alone, before its script."""
    assert _isolating(command.split()) == option


def test_an_environment_without_otel_rl(tmp_path: Path) -> None:
    """A process that a launcher starts there says that it is not recorded, and runs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True)
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", "other/bin/python", "-c", "print('worker')"]
    output, errors = start(command, tmp_path).communicate(timeout=60)

    assert output == "worker\n"
    assert errors == f"otel-rl: a process of {tmp_path / 'other'} is not recorded: install otel_rl there\n"


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    """Ours stands before it, and hands on."""
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-c", "print('trainer')"]

    assert run(command, tmp_path, PYTHONPATH=str(tmp_path)).split() == ["theirs", "theirs", "trainer"]

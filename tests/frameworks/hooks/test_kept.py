"""Programs of real trackers: what they keep beyond what is logged, and the phases of trials."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Configured, Logged
from tests.processes import run, start
from tests.real_parts import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
_WANDB = """
import os, wandb
run = wandb.init(project="p", name="mine", dir=os.getcwd(), config={"lr": 0.1, "algo": {"clip": 0.2}}, tags=["a"])
run.config.update({"seed": 3})
for n in range(3): wandb.log({"loss": 1.0 * n}, step=n)
wandb.summary["best"] = 0.75; run.summary["loss"] = 0.5; run.config.late = 7
wandb.finish()
"""
_PROGRAMS = {
    "wandb": _WANDB,
    "mlflow": """
import mlflow
mlflow.set_tracking_uri("sqlite:///ml.db"); mlflow.set_experiment("p")
with mlflow.start_run(run_name="mine"):
    mlflow.log_params({"lr": 0.1}); mlflow.log_param("seed", 3); mlflow.set_tag("team", "rl")
    for n in range(3): mlflow.log_metric("loss", 1.0 * n, step=n, synchronous=False)
""",
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("tb/mine")
for n in range(3): writer.add_scalar("loss", 1.0 * n, n)
writer.add_hparams({"lr": 0.1, "seed": 3}, {"best": 0.75}, global_step=2)
writer.add_text("note", "text")
writer.close()
""",
    "swanlab": """
import swanlab
run = swanlab.init(project="p", experiment_name="mine", mode="offline", log_dir="swan", config={"lr": 0.1})
run.config.seed = 3
for n in range(3): swanlab.log({"loss": 1.0 * n}, step=n)
swanlab.finish()
""",
    "trackio": """
import trackio
trackio.init(project="p", name="mine", auto_log_gpu=False, config={"lr": 0.1, "seed": 3})
for n in range(3): trackio.log({"loss": 1.0 * n}, step=n)
trackio.finish()
""",
}
_CURVE = {f"loss@{n}": 1.0 * n for n in range(3)}
_VALUES = {
    "wandb": _CURVE | {"best@2": 0.75, "summary/loss@2": 0.5},
    "tensorboard": _CURVE | {"best@2": 0.75},
}
_PARAMS: dict[str, dict[str, object]] = {
    "wandb": {"lr": 0.1, "algo.clip": 0.2, "seed": 3, "late": 7},
    "mlflow": {"lr": "0.1", "seed": 3, "mlflow.tags.team": "rl"},
}


def launched(directory: Path, tracker: str, program: str, **environment: str) -> str:
    """Run a program under `otel-rl run`; return its standard error."""
    off = {f"OTEL_RL_{name}": value for name, value in {"AGENT": "off", "EXPORTERS": "", "HARDWARE": "0"}.items()}
    quiet = {"WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_MODE": "offline"}
    quiet["TRACKIO_DIR"] = str(directory / "trackio")
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--capture", tracker, "--", sys.executable, "-c", program]
    process = start(command, directory, **off, **quiet | environment)
    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, (output, errors)
    return errors


def kept(directory: Path, tracker: str, program: str, **environment: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Run a program; return the name, the values by name and step, and the parameters of its one run."""
    launched(directory, tracker, program, **environment)
    return only_run(directory)


def only_run(directory: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the name, the values by name and step, and the parameters of the one run below a directory."""
    (info,) = directory.glob("runs/*/*/run.json")
    values, params = records(info.parent)
    return json.loads(info.read_text())["name"], values, params


def records(run_dir: Path, attempt: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values by name and step, and the parameters, of the one journal of an attempt of a run."""
    (journal,) = run_dir.rglob(f"journals/*.attempt{attempt}.*")
    values: dict[str, Any] = {}
    params: dict[str, Any] = {}
    reader = Reader(journal, AnyRecord)
    while records := reader.read():
        for record in records:
            if isinstance(record, Logged):
                values |= {f"{name}@{record.step}": value for name, value in record.values.items()}
            if isinstance(record, Configured):
                params |= record.values
    reader.close()
    return values, params


@pytest.mark.parametrize("tracker", [pytest.param(name, marks=needs(name)) for name in _PROGRAMS])
def test_what_a_tracker_keeps(tracker: str, tmp_path: Path) -> None:
    """The name is the tracker's, and each value and parameter is in its one run."""
    name, values, params = kept(tmp_path, tracker, _PROGRAMS[tracker])
    expected = _PARAMS.get(tracker, {"lr": 0.1, "seed": 3})

    assert name == "mine"
    assert values == _VALUES.get(tracker, _CURVE)
    assert {key: params.get(key) for key in expected} == expected


_OFF = {"WANDB_MODE": "disabled"}
_SWANLAB = _PROGRAMS["swanlab"]
_LINE = "{} is switched off; otel-rl records what it is given"


@pytest.mark.parametrize(
    ("tracker", "program", "environ", "is_off"),
    [
        pytest.param("wandb", _WANDB, _OFF, True, marks=needs("wandb")),
        pytest.param("wandb", _WANDB.replace("dir=", 'mode="disabled", dir='), {}, True, marks=needs("wandb")),
        # W&B itself ignores these.
        pytest.param("wandb", _WANDB, {"WANDB_DISABLED": "true"}, False, marks=needs("wandb")),
        pytest.param("wandb", "import torch\n" + _WANDB, _OFF, True, marks=needs("wandb")),
        pytest.param("swanlab", _SWANLAB.replace("offline", "disabled"), {}, True, marks=needs("swanlab")),
        pytest.param(
            "swanlab",
            _SWANLAB.replace('mode="offline", ', ""),
            {"SWANLAB_MODE": "disabled"},
            True,
            marks=needs("swanlab"),
        ),
    ],
)
def test_a_tracker_that_is_switched_off(
    tracker: str, program: str, environ: dict[str, str], is_off: bool, tmp_path: Path
) -> None:
    """The same values and parameters are recorded as where it is on, and one line says that it is off."""
    errors = launched(tmp_path, tracker, program, **environ)
    _, values, params = only_run(tmp_path)
    expected = _PARAMS.get(tracker, {"lr": 0.1, "seed": 3})

    assert errors.count(_LINE.format(tracker)) == is_off
    assert values == _VALUES.get(tracker, _CURVE)
    assert {key: params.get(key) for key in expected} == expected


_TRIALS = """
import torch
from torch.utils.tensorboard import SummaryWriter
for trial in range(2):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    writer = SummaryWriter(f"tb/trial{trial}")
    for global_step in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        writer.add_scalar("loss", 10.0 * trial + global_step, global_step)
    writer.close()
"""


@needs("tensorboard")
def test_trials_of_a_plain_loop(tmp_path: Path) -> None:
    """Each trial is a run, though its first phase begins before its first value."""
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "torch", "--capture", "tensorboard", "--"]
    run([*command, sys.executable, "-c", _TRIALS], tmp_path, OTEL_RL_AGENT="off", OTEL_RL_HARDWARE="false")
    runs = sorted(tmp_path.glob("runs/*/*/run.json"), key=lambda path: path.parent.name)

    assert [json.loads(info.read_text())["name"] for info in runs] == ["trial0", "trial1"]
    assert [records(info.parent)[0] for info in runs] == [
        {f"loss@{step}": 10.0 * trial + step for step in range(3)} for trial in range(2)
    ]

"""slime: loop, Ray actors, trackers, timers and metrics, from a checkout in `OTEL_RL_SOURCES`; its engines are toys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.exporters import wandb_file
from tests.frameworks.recorded import Recorded, launched, only
from tests.frameworks.results import SOURCES, Values, by_step, compared, tensorboard

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (SOURCES / "slime").exists(), reason="no slime in OTEL_RL_SOURCES"),
]
REVISION = "624b824"
_AXES = ("train/step", "rollout/step", "eval/step")
_TRAINER = ["data_preprocess", "train", "update_weights"]
"""The phases of a trainer, in their order, without those inside `train`."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`, with slime's trackers for W&B and TensorBoard."""
    place: Path = tmp_path_factory.mktemp("slime")
    environment = {"PYTHONPATH": str(SOURCES / "slime"), "TENSORBOARD_DIR": "own/tensorboard"}
    launched(place, "slime_train.py", OTEL_RL_DIR=str(place / "runs"), **environment)
    return place


@pytest.fixture
def recorded(directory: Path) -> Recorded:
    """The run; there is one, of the driver and three actors."""
    return only(directory / "runs" / "p")


def of_wandb(directory: Path) -> Values:
    """Return the numbers in W&B's files of the driver and of both actors that log, at the axis that slime logs with."""
    files = wandb_file.files(str(directory / "own"))
    rows = [row for file in files for row in wandb_file.history(file)]
    return by_step(
        (int(row[axis]), {name: json.loads(text) for name, text in row.items() if name[0] != "_" and name != axis})
        for row in rows
        for axis in _AXES
        if axis in row
    )


def test_rows_are_what_slime_logged(directory: Path, recorded: Recorded) -> None:
    """Number by number: two updates for each of four rollouts, each with the step of its axis."""
    ran = "train.py with its Ray actors, 4 rollouts, 8 updates; toy engines; in TensorBoard's single precision"
    wrote = tensorboard(directory / "own" / "tensorboard")
    found = recorded.agrees(wrote, "slime", REVISION, ran, single=True)

    assert found.steps == [0, 1, 2, 3, 4, 5, 6, 7]
    assert {"train/loss", "rollout/rewards", "rollout/response_len/mean", "perf/train_time", "eval/gsm8k"} < found.names


def test_rows_are_what_wandb_got(directory: Path, recorded: Recorded) -> None:
    """In double precision, as far as the actors have flushed: Ray kills trainers, whose W&B never finishes."""
    found = compared(of_wandb(directory), recorded.rows)

    assert {"rollout/response_len/mean", "eval/gsm8k"} < found.names
    assert found.different == []


def test_steps_and_phases(recorded: Recorded) -> None:
    """A step is a rollout, with the phases of all actors; nothing comes after the rows of the training."""
    roles = {str(span.attributes["rl.role"]) for span in recorded.spans if span.name != "rl.loop"}
    phases = {step: set(inside) for step, inside in recorded.phases.items()}

    assert roles == {"actor", "rollout"}
    assert phases == {
        0: {*_TRAINER, "generate", "evaluate"},
        1: {*_TRAINER, "generate", "evaluate", "save_model"},
        2: {*_TRAINER, "generate"},
        3: {*_TRAINER, "generate", "evaluate", "save_model"},
    }
    assert [row.step for row in recorded.reduced if row.part] == []


def test_arguments(recorded: Recorded) -> None:
    """They are hyper-parameters of the driver's run, which has the project and the group of W&B."""
    assert recorded.directory.name.startswith("grpo-")
    assert recorded.params["n_samples_per_eval_prompt"] == 4

"""AReaL's PPO trainer, for real: its loop, statistics and loggers, with stand-ins for its engines, which need GPUs."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from tests.frameworks.recorded import Recorded, launched, only
from tests.frameworks.results import tensorboard

pytestmark = pytest.mark.timeout(500)
_PHASES = ["rollout", "compute_advantage", "train_step", "update_weights", "save", "checkpoint_for_recover", "eval"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`, with AReaL's own TensorBoard."""
    place: Path = tmp_path_factory.mktemp("areal")
    launched(place, "areal_ppo.py", AREAL_SPMD_MODE="1")
    return place


@pytest.fixture
def recorded(directory: Path) -> Recorded:
    """The run; there is one."""
    return only(directory / "runs" / "p")


def test_rows_are_what_areal_logged(directory: Path, recorded: Recorded) -> None:
    """At its global steps, number by number, without the counts that it keeps from its loggers."""
    ran = "PPOTrainer.train, 2 epochs of 2 steps; toy engines, the rest is AReaL's; in TensorBoard's single precision"
    wrote = tensorboard(directory / "own" / "tensorboard")
    found = recorded.agrees(wrote, "areal", metadata.version("areal"), ran, single=True)

    assert found.steps == [0, 1, 2, 3]
    assert {"ppo_actor/update/actor_loss/avg", "rollout/reward", "timeperf/train_step"} < found.names
    assert not any(name.endswith("__count") for row in recorded.rows.values() for name in row)


def test_phases(recorded: Recorded) -> None:
    """Sections that the trainer times are under the root of their step."""
    assert recorded.phases == {step: [*_PHASES, "clear_batches"] for step in range(4)}


def test_configuration(recorded: Recorded) -> None:
    """It is the whole experiment's, flattened; the run has the name of the trial."""
    assert recorded.directory.name.startswith("ppo-")
    assert (recorded.params["trial_name"], recorded.params["actor.ppo_n_minibatches"]) == ("ppo", 2)

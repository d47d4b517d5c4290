"""A plain PyTorch loop, recorded without a line in it."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import wait_for
from tests.frameworks.recorded import launched, only, told_by
from tests.frameworks.results import SOURCES, compared, tensorboard
from tests.real_parts import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500), needs("tensorboard")]
_TOLD = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "loop"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script wrote to TensorBoard, and the run is."""
    place: Path = tmp_path_factory.mktemp("torch")
    options = ["--instrument", "torch", "--capture", "tensorboard"]
    assert launched(place, "torch_ppo.py", options=options, **_TOLD) == "updates 12\n"
    run_dir = directories.at(only(place / "runs" / "p").directory)
    wait_for(lambda: agent_start.read_status(run_dir).state == "ended", "the agent does not end")
    return place


def test_steps_are_those_that_the_script_logs(directory: Path) -> None:
    """The updates of one iteration are a step, and have the number at which it logs after them."""
    recorded = only(directory / "runs" / "p")
    inside = [Counter(phases) for phases in recorded.phases.values()]

    assert list(recorded.phases) == [128, 256, 384]
    assert all((found["backward"], found["optimizer_step"]) == (4, 4) for found in inside)
    assert sum(found["data"] for found in inside) == 17  # 12 batches and 6 ends of an epoch, but for the first batch
    assert [span.error for span in recorded.spans if span.error] == []


def test_rows_are_what_the_script_logged(directory: Path) -> None:
    """Number by number, in single precision, as TensorBoard has them."""
    found = compared(tensorboard(directory / "tb"), only(directory / "runs" / "p").rows, single=True)

    assert (len(found.equal), found.different) == (9, [])


@pytest.mark.skipif(
    not (SOURCES / "cleanrl").exists() or find_spec("tyro") is None,
    reason="no cleanrl in OTEL_RL_SOURCES, or none of its packages: tyro, gymnasium 0.29",
)
def test_cleanrl(tmp_path: Path) -> None:
    """Its PPO, unchanged: every number, and one step for each iteration, in the row of its losses."""
    script, sizes = str(SOURCES / "cleanrl" / "cleanrl" / "ppo.py"), ["--num-steps", "64", "--total-timesteps", "4000"]
    options = ["--instrument", "torch", "--capture", "tensorboard"]
    launched(tmp_path, script, *sizes, "--no-cuda", options=options, OTEL_RL_DIR="otel", **_TOLD)
    (own,) = (tmp_path / "runs").iterdir()
    recorded = only(tmp_path / "otel" / "p")
    ran = "ppo.py on CartPole, unchanged, `--instrument torch --capture tensorboard`; compared in single precision"
    title = "CleanRL (a plain PyTorch loop)"
    found = recorded.agrees(tensorboard(own), title, "fe8d8a0", ran, single=True, users_names=True)

    assert "charts/episodic_return" in found.names
    assert list(recorded.phases) == [256 * n for n in range(1, 16)]
    assert {phases.count("backward") for phases in recorded.phases.values()} == {16}


@pytest.mark.skipif(find_spec("skrl") is None, reason="no skrl")
def test_skrl(tmp_path: Path) -> None:
    """Every number of its PPO, which has a writer of its own."""
    launched(tmp_path, "skrl_ppo.py", options=["--capture", "tensorboard"], **_TOLD)
    recorded, own = only(tmp_path / "runs" / "p"), tensorboard(tmp_path / "own" / "ppo")
    ran = "PPO on CartPole, `--capture tensorboard`; compared in single precision"
    found = recorded.agrees(own, "skrl (its TensorBoard)", version("skrl"), ran, single=True, users_names=True)

    assert "Loss / Policy loss" in found.names


def test_a_script_of_which_nothing_is_recorded_says_so(tmp_path: Path) -> None:
    """One line names what was seen, and what can be done."""
    errors = told_by(tmp_path, "torch_ppo.py", **_TOLD)

    assert errors.count("otel-rl recorded nothing") == 1
    assert "imported: tensorboard; add --instrument torch for a loop of your own, or --capture tensorboard" in errors
    assert not (tmp_path / "runs").exists()

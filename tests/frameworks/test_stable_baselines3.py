"""Stable-Baselines3, for real: PPO with the callback; DQN and SAC in one script without a line of otel-rl."""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.frameworks.recorded import Recorded, launched, plain
from tests.frameworks.results import Compared, Values, by_step, compared, keep, phase_coverage

pytestmark = pytest.mark.timeout(500)
_PLACES = {"own": "ppo", "dqn": "off", "sac": "off-2"}
"""The run of each directory with SB3's own file."""


def wrote(directory: Path) -> Values:
    """Return what SB3's own JSON file has, by timestep and name."""
    dumps = [json.loads(line) for line in (directory / "progress.json").read_text().splitlines()]
    return by_step((dump["time/total_timesteps"], dump) for dump in dumps)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the algorithms wrote their own files, and the runs are."""
    place: Path = tmp_path_factory.mktemp("sb3")
    plain(place, "stable_baselines3_ppo.py")
    told = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "off", "OTEL_RL_QUIET": "1"}
    launched(place, "stable_baselines3_sac_dqn.py", **told)
    return place


@pytest.fixture(scope="module")
def runs(directory: Path) -> dict[str, Recorded]:
    """The runs, each by the directory with SB3's own file."""
    found = {path.name: Recorded(path) for path in (directory / "runs" / "p").iterdir()}
    assert sorted(found) == sorted(_PLACES.values())
    return {own: found[name] for own, name in _PLACES.items()}


def test_rows_are_what_it_dumped(directory: Path, runs: dict[str, Recorded]) -> None:
    """At its own timesteps, number by number; each of the models has its own run."""
    parts = [compared(wrote(directory / own), recorded.rows) for own, recorded in runs.items()]
    found = Compared([one for part in parts for one in part.equal], [one for part in parts for one in part.different])
    covered = [phase_coverage(recorded.spans) or 0.0 for recorded in runs.values()]
    lengths = [len(part.steps) for part in parts]
    coverage = sum(share * steps for share, steps in zip(covered, lengths, strict=True)) / sum(lengths)
    ran = "PPO and DQN on CartPole, SAC on Pendulum, on a CPU"
    keep("stable_baselines3", version("stable-baselines3"), ran, found, coverage)

    assert found.different == []
    assert len(found.equal) > 200


def test_steps_of_an_on_policy_algorithm(runs: dict[str, Recorded]) -> None:
    """Each step is a rollout and the training on it, under one root."""
    phases = {step: Counter(found) for step, found in runs["own"].phases.items()}

    assert phases == {step: {"rollout": 1, "train": 1} for step in (128, 256, 384, 512, 640)}


@pytest.mark.parametrize(("own", "begins"), [("dqn", [0, 800]), ("sac", [0])])
def test_steps_of_an_off_policy_algorithm(
    own: str, begins: list[int], directory: Path, runs: dict[str, Recorded]
) -> None:
    """There is a row for each dump, and one for the time from each `learn` to its first dump; all have phases."""
    steps = sorted({*begins, *wrote(directory / own)})

    assert list(runs[own].rows) == steps
    assert list(runs[own].phases) == steps
    assert sum("time/train" in row for row in runs[own].rows.values()) > 1


def test_parameters(runs: dict[str, Recorded]) -> None:
    """The algorithm's own."""
    assert (runs["own"].params["n_steps"], runs["own"].params["gamma"]) == (128, 0.99)

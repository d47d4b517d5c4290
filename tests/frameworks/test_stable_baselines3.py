"""Stable-Baselines3, for real: PPO with the callback; DQN and SAC in one script without a line of otel-rl."""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from tests.frameworks.results import Compared, Number, compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_EXAMPLES = Path(__file__).with_name("examples")
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_PLACES = {"own": "ppo", "dqn": "off", "sac": "off-2"}
"""The run of each directory with SB3's own file."""


def wrote(directory: Path) -> dict[Number, float]:
    """Return what SB3's own JSON file has, by timestep and name."""
    dumps = [json.loads(line) for line in (directory / "progress.json").read_text().splitlines()]
    return {(dump["time/total_timesteps"], name): value for dump in dumps for name, value in dump.items()}


def phases(run_dir: Path) -> dict[object, Counter[object]]:
    """Return how often each phase is in each step."""
    spans = [item for item in items_of(run_dir) if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    inside = [span for span in spans if span.span_id not in roots]
    return {
        n: Counter(span.attributes["rl.phase"] for span in inside if roots[span.parent_id] == n) for n in roots.values()
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the algorithms wrote their own files, and the runs are."""
    place: Path = tmp_path_factory.mktemp("sb3")
    run([sys.executable, str(_EXAMPLES / "stable_baselines3_ppo.py")], place, **_ONE_THREAD)
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable]
    told = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "off", "OTEL_RL_HARDWARE": "0", "OTEL_RL_QUIET": "1"}
    run([*command, str(_EXAMPLES / "stable_baselines3_sac_dqn.py")], place, **told, **_ONE_THREAD)
    return place


def test_rows_are_what_it_dumped(directory: Path) -> None:
    """At its own timesteps, number by number; each of the models has its own run."""
    runs = directory / "runs" / "p"
    each = {name: compared(wrote(directory / own), rows_of(runs / name)) for own, name in _PLACES.items()}
    parts = list(each.values())
    found = Compared([one for part in parts for one in part.equal], [one for part in parts for one in part.different])
    covered = [phase_coverage(runs / name) * len(part.steps) for name, part in each.items()]
    ran = "PPO and DQN on CartPole, SAC on Pendulum, on a CPU"
    coverage = sum(covered) / sum(len(part.steps) for part in parts)
    keep("stable_baselines3", version("stable-baselines3"), ran, found, coverage)

    assert found.different == []
    assert len(found.equal) > 200
    assert sorted(path.name for path in runs.iterdir()) == sorted(_PLACES.values())


def test_steps_of_an_on_policy_algorithm(directory: Path) -> None:
    """Each step is a rollout and the training on it, under one root."""
    assert phases(directory / "runs" / "p" / "ppo") == {
        step: {"rollout": 1, "train": 1} for step in (128, 256, 384, 512, 640)
    }


@pytest.mark.parametrize(("own", "begins"), [("dqn", [0, 800]), ("sac", [0])])
def test_steps_of_an_off_policy_algorithm(own: str, begins: list[int], directory: Path) -> None:
    """There is a row for each dump, and one for the time from each `learn` to its first dump; all have phases."""
    run_dir = directory / "runs" / "p" / _PLACES[own]
    rows = rows_of(run_dir)
    dumps = sorted({step for step, _ in wrote(directory / own)})

    assert [row["step"] for row in rows] == sorted({*begins, *dumps})
    assert list(phases(run_dir)) == sorted({*begins, *dumps})
    assert sum("time/train" in row["values"] for row in rows) > 1  # type: ignore[operator]


def test_parameters(directory: Path) -> None:
    """The algorithm's own."""
    values = {}
    for item in items_of(directory / "runs" / "p" / "ppo"):
        values |= item.values if isinstance(item, Params) else {}

    assert (values["n_steps"], values["gamma"]) == (128, 0.99)

"""MaxEnt-GRPO's successor `oat_drgrpo`, for real: its learner, its actor and OAT's collector, on a CPU.

`OTEL_RL_SOURCES` has a checkout of liv-daliberti/maxent-grpo, main at e7a589c, as `maxent-grpo`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.recorded import Recorded, launched, plain
from tests.frameworks.results import SOURCES, by_step

_SOURCE = SOURCES.absolute() / "maxent-grpo" / "src"
pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(not _SOURCE.is_dir(), reason="no maxent-grpo in OTEL_RL_SOURCES"),
]
_SCRIPT = "oat_drgrpo_learner.py"
_TOLD = {"PYTHONPATH": str(_SOURCE), "OTEL_RL_RUN_ID": "o", "OTEL_RL_EXPORTERS": "jsonl"}
STEPS = [0, 1, 2, 3, 4, 5, 6]
"""Evaluated before the training, five batches of prompts, and evaluated after it."""


def wrote(place: Path) -> list[dict[str, Any]]:
    """Return what the learner wrote to its own file."""
    return [json.loads(line) for line in (place / "train_metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`."""
    directory: Path = tmp_path_factory.mktemp("oat")
    launched(directory, _SCRIPT, options=["--instrument", "oat_drgrpo"], **_TOLD)
    return directory


@pytest.fixture
def recorded(place: Path) -> Recorded:
    """The run."""
    return Recorded(place / "runs" / "p" / "toy-o")


def test_rows_are_what_the_learner_wrote(place: Path, recorded: Recorded) -> None:
    """Every number is in the row of the learner's step, and every name is known."""
    numbers = by_step((int(line["trainer/step"]), line) for line in wrote(place))
    ran = "learner, actor and evaluations on a CPU, toy model; vLLM and DeepSpeed were replaced"
    found = recorded.agrees(numbers, "oat_drgrpo", "e7a589c, oat-llm 0.1.3.post1", ran)

    assert found.steps == STEPS
    assert len(found.equal) > 300


def test_phases_cover_the_steps(recorded: Recorded) -> None:
    """The learner's methods are phases under their canonical names, in their order."""
    update = ["_pre_learning", "learn", "_post_learning", "sync_params_to_actors"]

    assert list(recorded.phases) == STEPS
    assert recorded.phases[3] == ["collect_feedback", "process_feedback_data", *update, "eval_and_log"]
    assert sum(span.attributes.get("rl.phase") == "evaluate" for span in recorded.spans) == 3


def test_arguments_are_parameters(recorded: Recorded) -> None:
    """They are those of the learner."""
    assert recorded.params["critic_type"] == "drgrpo"
    assert recorded.params["num_samples"] == 4


def test_training_is_the_same_without_otel_rl(place: Path, tmp_path: Path) -> None:
    """Every number but times is bit for bit the same."""
    plain(tmp_path, _SCRIPT, **_TOLD)
    timed = ("time", "elapse", "seconds", "per_second")
    with_us, bare = (
        [{n: v for n, v in line.items() if not any(part in n for part in timed)} for line in wrote(directory)]
        for directory in (place, tmp_path)
    )

    assert len(bare[3]) > 40
    assert bare == with_us

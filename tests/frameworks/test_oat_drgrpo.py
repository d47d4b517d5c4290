"""MaxEnt-GRPO's successor `oat_drgrpo`, for real: its learner, its actor and OAT's collector, on a CPU.

`OTEL_RL_SOURCES` has a checkout of liv-daliberti/maxent-grpo, main at e7a589c, as `maxent-grpo`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from otel_rl.semconv.drift import sorted_out
from tests.frameworks.results import SOURCES, compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

_SOURCE = SOURCES.absolute() / "maxent-grpo" / "src"
pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(not _SOURCE.is_dir(), reason="no maxent-grpo in OTEL_RL_SOURCES"),
]
_SCRIPT = str(Path(__file__).with_name("examples") / "oat_drgrpo_learner.py")
STEPS = [0, 1, 2, 3, 4, 5, 6]
"""Evaluated before the training, five batches of prompts, and evaluated after it."""


def train(place: Path, *launcher: str) -> list[dict[str, float]]:
    """Train, and return what the learner wrote to its own file."""
    told = {"PYTHONPATH": str(_SOURCE), "OTEL_RL_RUN_ID": "o", "OTEL_RL_HARDWARE": "false"}
    run([*launcher, sys.executable, _SCRIPT], place, **told, OTEL_RL_EXPORTERS="jsonl", OMP_NUM_THREADS="1")
    return [json.loads(line) for line in (place / "train_metrics.jsonl").read_text().splitlines()]


def run_of(place: Path) -> Path:
    """Return the run directory."""
    return place / "runs" / "p" / "toy-o"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`."""
    directory: Path = tmp_path_factory.mktemp("oat")
    train(directory, sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "oat_drgrpo", "--")
    return directory


def test_rows_are_what_the_learner_wrote(place: Path) -> None:
    """Every number is in the row of the learner's step, and every name is known."""
    lines = [json.loads(line) for line in (place / "train_metrics.jsonl").read_text().splitlines()]
    found = compared(
        {(int(line["trainer/step"]), n): v for line in lines for n, v in line.items()}, rows_of(run_of(place))
    )
    coverage = phase_coverage(run_of(place))
    ran = "learner, actor and evaluations on a CPU, toy model; vLLM and DeepSpeed were replaced"
    keep("oat_drgrpo", "e7a589c, oat-llm 0.1.3.post1", ran, found, coverage)

    assert found.different == []
    assert found.steps == STEPS
    assert len(found.equal) > 300
    assert sorted_out(found.names, "oat_drgrpo").unknown == []


def test_phases_cover_the_steps(place: Path) -> None:
    """The learner's methods are phases under their canonical names, in their order."""
    spans = [item for item in items_of(run_of(place)) if isinstance(item, Span)]
    steps = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = [str(span.attributes["rl.phase"]) for span in spans if steps.get(span.parent_id) == 3]
    update = ["_pre_learning", "learn", "_post_learning", "sync_params_to_actors"]

    assert list(steps.values()) == STEPS
    assert phases == ["collect_feedback", "process_feedback_data", *update, "eval_and_log"]
    assert sum(span.attributes.get("rl.phase") == "evaluate" for span in spans) == 3


def test_arguments_are_parameters(place: Path) -> None:
    """They are those of the learner."""
    (params,) = (item for item in items_of(run_of(place)) if isinstance(item, Params))

    assert params.values["critic_type"] == "drgrpo"
    assert params.values["num_samples"] == 4


def test_training_is_the_same_without_otel_rl(place: Path, tmp_path: Path) -> None:
    """Every number but times is bit for bit the same."""
    bare = train(tmp_path)
    lines = [json.loads(line) for line in (place / "train_metrics.jsonl").read_text().splitlines()]
    timed = ("time", "elapse", "seconds", "per_second")

    def steady(found: list[dict[str, float]]) -> list[dict[str, float]]:
        return [{n: v for n, v in line.items() if not any(part in n for part in timed)} for line in found]

    assert len(steady(bare)[3]) > 40
    assert steady(bare) == steady(lines)

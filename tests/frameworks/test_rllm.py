"""rLLM's unified trainer, for real, from a checkout in `OTEL_RL_SOURCES`, with a stand-in for its backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.recorded import Recorded, only, told_by
from tests.frameworks.results import SOURCES, tensorboard

pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(not (SOURCES / "rllm").exists(), reason="no rllm in OTEL_RL_SOURCES"),
]
REVISION = "9beb6e0"
_TIMED = ["generate", "forward_backward", "adv", "optim_step"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A training under `otel-rl run`, with rLLM's own TensorBoard, and what it wrote to standard error."""
    place: Path = tmp_path_factory.mktemp("rllm")
    environment = {"PYTHONPATH": str(SOURCES / "rllm"), "TENSORBOARD_DIR": "own", "HOME": str(place)}
    return place, told_by(place, "rllm_fit.py", **environment)


@pytest.fixture
def recorded(told: tuple[Path, str]) -> Recorded:
    """The run; there is one."""
    return only(told[0] / "runs" / "p")


def test_rows_are_what_rllm_logged(told: tuple[Path, str], recorded: Recorded) -> None:
    """At its global steps, number by number; the validations before and after the training have steps of their own."""
    ran = "UnifiedTrainer.fit, 4 steps and 4 validations; a toy backend; in TensorBoard's single precision"
    found = recorded.agrees(tensorboard(told[0] / "own"), "rllm", REVISION, ran, single=True)

    assert found.steps == [0, 1, 2, 3, 4, 5]
    assert {"reward/solver/mean", "val/sums/pass@1", "time/step", "batch/solve_all"} < found.names


def test_phases(recorded: Recorded) -> None:
    """They are under the root of their step, also those of the backend, whose coroutines the trainer awaits."""
    tested = [*_TIMED, "validate"]

    assert recorded.phases == {0: ["validate"], 1: _TIMED, 2: tested, 3: _TIMED, 4: tested, 5: ["validate"]}


def test_the_end(told: tuple[Path, str]) -> None:
    """The last step ends in the task in which it began: OpenTelemetry has nothing to complain about."""
    assert "Failed to detach context" not in told[1]

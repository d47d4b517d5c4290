"""A plain PyTorch loop, recorded without a line in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from tests.collector import wait_for
from tests.frameworks.recorded import Recorded, launched, told_by
from tests.frameworks.results import compared, tensorboard
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500), needs("tensorboard")]
_TOLD = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "loop"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script wrote to TensorBoard, and the run is."""
    place: Path = tmp_path_factory.mktemp("torch")
    options = ["--instrument", "torch", "--capture", "tensorboard"]
    assert launched(place, "torch_ppo.py", options=options, **_TOLD) == "updates 12\n"
    run_dir = directories.at(place / "runs" / "p" / "loop")
    wait_for(lambda: agent_start.read_status(run_dir).state == "ended", "the agent does not end")
    return place


def test_steps_are_those_that_the_script_logs(directory: Path) -> None:
    """The updates of one iteration are a step, and have the number at which it logs after them."""
    recorded = Recorded(directory / "runs" / "p" / "loop")
    inside = [Counter(phases) for phases in recorded.phases.values()]

    assert list(recorded.phases) == [128, 256, 384]
    assert all((found["backward"], found["optimizer_step"]) == (4, 4) for found in inside)
    assert sum(found["data"] for found in inside) == 17  # 12 batches and 6 ends of an epoch, but for the first batch
    assert [span.error for span in recorded.spans if span.error] == []


def test_rows_are_what_the_script_logged(directory: Path) -> None:
    """Number by number, in single precision, as TensorBoard has them."""
    found = compared(tensorboard(directory / "tb"), Recorded(directory / "runs" / "p" / "loop").rows, single=True)

    assert (len(found.equal), found.different) == (9, [])


def test_a_script_of_which_nothing_is_recorded_says_so(tmp_path: Path) -> None:
    """One line names what was seen, and what can be done."""
    errors = told_by(tmp_path, "torch_ppo.py", **_TOLD)

    assert errors.count("otel-rl recorded nothing") == 1
    assert "imported: tensorboard; add --instrument torch for a loop of your own, or --capture tensorboard" in errors
    assert not (tmp_path / "runs").exists()

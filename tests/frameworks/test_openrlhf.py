"""OpenRLHF's loggers, for real; its trainer needs GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.recorded import launched, only
from tests.frameworks.results import compared, tensorboard

pytestmark = pytest.mark.timeout(500)


def test_rows_are_what_its_tracker_gets(tmp_path: Path) -> None:
    """Once, at its global steps; its arguments are hyper-parameters."""
    launched(tmp_path, "openrlhf_loggers.py", options=["--instrument", "openrlhf"], OTEL_RL_RUN_ID="openrlhf")
    recorded = only(tmp_path / "runs" / "p")
    found = compared(tensorboard(tmp_path / "own" / "ppo"), recorded.rows, single=True)

    assert list(recorded.rows) == [1, 2, 3, 4]
    assert found.names == {"eval/gsm8k_pass1", "train/policy_loss", "train/timing/generation"}
    assert found.different == []
    assert recorded.params["seed"] == 7

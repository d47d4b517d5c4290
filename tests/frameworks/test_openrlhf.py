"""OpenRLHF's loggers, for real; its trainer needs GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_rl.export import Params
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "openrlhf_loggers.py")


def test_rows_are_what_its_tracker_gets(tmp_path: Path) -> None:
    """Once, at its global steps; its arguments are hyper-parameters."""
    environment = {"OTEL_RL_RUN_ID": "openrlhf", "OTEL_RL_HARDWARE": "false"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "openrlhf", "--", sys.executable, _SCRIPT]
    run(command, tmp_path, **environment)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (directory,) = (tmp_path / "runs" / "p").iterdir()
    rows = {row["step"]: row["values"] for row in rows_of(directory)}
    own = EventAccumulator(str(tmp_path / "own" / "ppo"), {"scalars": 0}).Reload()
    (params,) = (item.values for item in items_of(directory) if isinstance(item, Params))

    assert list(rows) == [1, 2, 3, 4]
    assert sorted(own.Tags()["scalars"]) == ["eval/gsm8k_pass1", "train/policy_loss", "train/timing/generation"]
    for tag in own.Tags()["scalars"]:
        for event in own.Scalars(tag):
            assert rows[event.step][tag] == pytest.approx(event.value)  # type: ignore[index]
    assert params["seed"] == 7

"""Accelerate's trackers, for real."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.export import Params
from tests.processes import items_of, rows_of, run, run_python

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(200)
_TRAINER = """
from accelerate import Accelerator
accelerator = Accelerator(log_with=TRACKERS, project_dir="own", cpu=True)
accelerator.init_trackers("p", config={"lr": 0.1, "layers": 2})
for n in range(5):
    accelerator.log({"reward": n / 3, "note": "text", "loss": float("nan") if n == 2 else 1.0}, step=n * 10)
accelerator.end_training()
"""


def check(directory: Path) -> None:
    """What was logged is there, and what else trackers take is no error."""
    rows = rows_of(directory)
    params = [item.values for item in items_of(directory) if isinstance(item, Params)]

    assert [(row["step"], row["values"]["reward"]) for row in rows] == [(n * 10, n / 3) for n in range(5)]  # type: ignore[index]
    assert rows[2]["values"]["loss"] == "NaN"  # type: ignore[index]
    assert params == [{"lr": 0.1, "layers": 2}]


def test_the_tracker(tmp_path: Path) -> None:
    """One line: the tracker that is given to `log_with`."""
    line = "from otel_rl.integrations.accelerate import OtelRlTracker\n"
    own = 'OtelRlTracker(project="p", id="accelerated", quiet=True, hardware=False)'
    run_python(line + _TRAINER.replace("TRACKERS", own), tmp_path)

    check(tmp_path / "runs" / "p" / "accelerated")


def test_no_line(tmp_path: Path) -> None:
    """With `otel-rl run`; its own trackers get the same."""
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "accelerate", "--", sys.executable, "-c"]
    run([*command, _TRAINER.replace("TRACKERS", '"tensorboard"')], tmp_path, OTEL_RL_RUN_ID="accelerated")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (logs,) = {path.parent for path in (tmp_path / "own").rglob("events.out.tfevents*") if path.parent.name == "p"}
    own = EventAccumulator(str(logs), {"scalars": 0}).Reload().Scalars("reward")

    check(tmp_path / "runs" / "p" / "accelerated")
    assert [(event.step, event.value) for event in own] == [(n * 10, pytest.approx(n / 3)) for n in range(5)]

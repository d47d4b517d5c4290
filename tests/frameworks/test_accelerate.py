"""Accelerate, for real: its trackers around a loop."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.frameworks.recorded import EXAMPLES, Recorded, plain, told_by
from tests.frameworks.results import tensorboard

pytestmark = pytest.mark.timeout(500)
_SCRIPT = "accelerate_loop.py"


def check(recorded: Recorded) -> None:
    """Logged values are there, and other arguments of trackers cause no error."""
    assert [(step, row["reward"]) for step, row in recorded.rows.items()] == [(n * 10, n / 3) for n in range(5)]
    assert recorded.rows[20]["loss"] == "NaN"
    assert recorded.params == {"lr": 0.1, "layers": 2}


def test_the_tracker(tmp_path: Path) -> None:
    """One line: the tracker that is given to `log_with`."""
    plain(tmp_path, _SCRIPT)

    check(Recorded(tmp_path / "runs" / "p" / "accelerated"))


def test_no_line(tmp_path: Path) -> None:
    """With `otel-rl run`; its own trackers get the same, the user's project wins, and one line says what is missing."""
    lines = (EXAMPLES / _SCRIPT).read_text().splitlines(keepends=True)
    script = "".join(line for line in lines if "OtelRlTracker" not in line).replace("=tracker", '="tensorboard"')
    told = {"OTEL_RL_RUN_ID": "accelerated", "OTEL_RL_PROJECT": "mine"}
    errors = told_by(tmp_path, "-c", script, options=["--instrument", "accelerate"], **told)
    assert errors.count("this trainer of accelerate has no timers") == 1

    recorded = Recorded(tmp_path / "runs" / "mine" / "accelerated")
    (logs,) = {path.parent for path in (tmp_path / "own").rglob("events.out.tfevents*") if path.parent.name == "p"}
    wrote = tensorboard(logs)
    del wrote[20]["loss"]  # NaN, see `check`
    ran = "a loop with prepare, backward and TensorBoard's tracker, on a CPU; compared in TensorBoard's single "
    ran += "precision; users choose the names"
    found = recorded.agrees(wrote, "accelerate", version("accelerate"), ran, single=True, users_names=True)

    check(recorded)
    assert len(found.equal) == 9

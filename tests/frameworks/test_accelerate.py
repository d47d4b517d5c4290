"""Accelerate's trackers, for real."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_rl.export import Params
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = Path(__file__).with_name("examples") / "accelerate_loop.py"


def check(directory: Path) -> None:
    """Logged values are there, and other arguments of trackers cause no error."""
    rows = rows_of(directory)
    params = [item.values for item in items_of(directory) if isinstance(item, Params)]

    assert [(row["step"], row["values"]["reward"]) for row in rows] == [(n * 10, n / 3) for n in range(5)]  # type: ignore[index]
    assert rows[2]["values"]["loss"] == "NaN"  # type: ignore[index]
    assert params == [{"lr": 0.1, "layers": 2}]


def test_the_tracker(tmp_path: Path) -> None:
    """One line: the tracker that is given to `log_with`."""
    run([sys.executable, str(_SCRIPT)], tmp_path)

    check(tmp_path / "runs" / "p" / "accelerated")


def test_no_line(tmp_path: Path) -> None:
    """With `otel-rl run`; its own trackers get the same."""
    lines = _SCRIPT.read_text().splitlines(keepends=True)
    plain = "".join(line for line in lines if "OtelRlTracker" not in line)
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "accelerate", "--", sys.executable, "-c"]
    run([*command, plain.replace("=tracker", '="tensorboard"')], tmp_path, OTEL_RL_RUN_ID="accelerated")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (logs,) = {path.parent for path in (tmp_path / "own").rglob("events.out.tfevents*") if path.parent.name == "p"}
    own = EventAccumulator(str(logs), {"scalars": 0}).Reload().Scalars("reward")

    check(tmp_path / "runs" / "p" / "accelerated")
    assert [(event.step, event.value) for event in own] == [(n * 10, pytest.approx(n / 3)) for n in range(5)]

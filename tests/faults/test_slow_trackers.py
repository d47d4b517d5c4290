"""Trackers that start slowly, or that warn: the agent waits for what works, and lets warnings be warnings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import run, run_python

_TRACKER = """
import pathlib, time, warnings
class Tracker:
    def __init__(self, run):
        self.file = pathlib.Path(run.directory, "tracker.txt")
        time.sleep({pause})
        warnings.warn("this tracker is old", DeprecationWarning)
    def export(self, items):
        rows = [item for item in items if type(item).__name__ == "Row"]
        with self.file.open("a") as file:
            file.writelines(f"{{row.step}}\\n" for row in rows)
    def shutdown(self): pass
"""
_TRAIN = """
import otel_rl
settings = dict(dir="runs", project="p", id="r", quiet=True, exporters=["tracker:Tracker"], hardware=False)
run = otel_rl.init(**settings, idle_timeout=0.3)
for n in range(20):
    run.log({"loss": 0.5}, step=n)
print(bool(run.finish()))
"""


def _train(place: Path, pause: float, **environment: str) -> str:
    (place / "tracker.py").write_text(_TRACKER.format(pause=pause))
    return run_python(_TRAIN, place, PYTHONPATH=str(place), **environment)


def _steps(place: Path) -> list[str]:
    return (place / "runs/p/r/tracker.txt").read_text().split()


@pytest.mark.slow
def test_a_tracker_that_starts_slowly_gets_everything(tmp_path: Path) -> None:
    """It starts for longer than `idle_timeout`: the agent does not end meanwhile."""
    said = _train(tmp_path, 2)

    assert (said, _steps(tmp_path)) == ("True\n", list(map(str, range(20))))


@pytest.mark.slow
def test_once_waits_for_a_tracker_that_starts_slowly(tmp_path: Path) -> None:
    """`agent --once` delivers to it what an agent left."""
    _train(tmp_path, 0)
    (tmp_path / "runs/p/r/tracker.txt").unlink()
    (cursor,) = (tmp_path / "runs/p/r").rglob("cursors/tracker.Tracker.json")
    cursor.unlink()
    (tmp_path / "tracker.py").write_text(_TRACKER.format(pause=2))
    run([sys.executable, "-m", "otel_rl.cli", "agent", "runs/p/r", "--once"], tmp_path, PYTHONPATH=str(tmp_path))

    assert _steps(tmp_path) == list(map(str, range(20)))


def test_warnings_are_no_errors_in_the_agent(tmp_path: Path) -> None:
    """`PYTHONWARNINGS=error` is for the trainer: a tracker that warns when it starts gets everything."""
    said = _train(tmp_path, 0, PYTHONWARNINGS="error")

    assert (said, _steps(tmp_path)) == ("True\n", list(map(str, range(20))))

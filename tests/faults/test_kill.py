"""SIGKILL, at any moment, to the trainer and to the agent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import kills
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import wait_for
from tests.exporters.every import needs_packages
from tests.processes import start_python

KILLS = [
    ("trainer", 3, kills.TRACKERS),
    ("agent", 3, kills.TRACKERS),
    ("both", 2, kills.TRACKERS),
    ("both", 2, ("swanlab", "trackio")),
]
"""A sample: `python -m benchmarks kills` kills 200, 200 and 100 times."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "count", "trackers"), [pytest.param(*one, marks=needs_packages(*one[2])) for one in KILLS]
)
def test_what_log_returned_from_is_in_every_tracker_once(
    kind: str, count: int, trackers: Sequence[str], tmp_path: Path
) -> None:
    """Trainer, agent, and both, at random moments: with trackers of the benchmark, and those that it has on request."""
    check(kind, count, tmp_path, trackers)


def check(kind: str, count: int, place: Path, trackers: Sequence[str]) -> None:
    """Kill so often: no row is lost, none appears twice, none is torn, in any tracker."""
    for tracker, verdict in kills.run(kind, count, place, trackers).verdicts.items():
        assert verdict.expected > 0
        assert (tracker, verdict.lost, verdict.doubled, verdict.torn) == (tracker, 0, 0, 0)


def test_the_agent_outlives_the_signals_of_its_trainer(tmp_path: Path) -> None:
    """Ctrl-C to the trainer's process group does not reach the agent."""
    script = """
import os, signal, time, otel_rl
run = otel_rl.init(dir="runs", quiet=True)
run.log({"loss": 1.0}, step=0)
print(run.dir, flush=True)
os.setpgid(0, 0)
os.killpg(0, signal.SIGKILL)
"""
    trainer = start_python(script, tmp_path)
    trainer.wait()
    directory = directories.at(_only_run(tmp_path))
    time.sleep(0.3)

    assert agent_start.agent_is_alive(directory)
    os.kill(agent_start.read_status(directory).pid, signal.SIGTERM)
    wait_for(lambda: not agent_start.agent_is_alive(directory), "the agent does not end at SIGTERM")


def _only_run(directory: Path) -> Path:
    return next(path for path in (directory / "runs").glob("[!.]*/*"))

"""The files by which a Prometheus finds agents: there for those that run, and for no other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.output.targets import STALE_S, Target
from tests.collector import wait_for
from tests.processes import run as run_program
from tests.processes import start_python

_KILLED = """
import os, signal, otel_rl
run = otel_rl.init(dir=".", project="p", id="killed", hardware=False, quiet=True)
with run.step(0):
    run.log({"x": 1.0})
import psutil
for agent in psutil.Process().children(recursive=True):
    agent.kill()
os.kill(os.getpid(), signal.SIGKILL)
"""


def old(path: Path) -> Path:
    """Make a file that nobody has marked as in use for long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[]")
    then = time.time() - STALE_S - 1
    os.utime(path, (then, then))
    return path


def test_an_agent_removes_files_of_agents_that_were_killed(tmp_path: Path) -> None:
    """On whatever machine they were: nobody marks their files as in use."""
    stale = old(tmp_path / ".targets" / "p.gone.node7.json")
    fresh = tmp_path / ".targets" / "p.other.node7.json"
    fresh.write_text("[]")
    run = otel_rl.init(dir=tmp_path, project="p", id="now", quiet=True, hardware=False)
    wait_for(lambda: not stale.exists(), "the file stays")
    assert run.finish(30)

    assert fresh.exists()


@pytest.mark.slow
def test_a_command_that_delivers_the_rest_of_a_run(tmp_path: Path) -> None:
    """It removes the file of the agent that was killed, at once."""
    start_python(_KILLED, tmp_path).wait(60)
    left = list((tmp_path / ".targets").iterdir())
    program = str(Path(sys.executable).with_name("otel-rl"))
    run_program([program, "agent", str(tmp_path / "p" / "killed"), "--once"], tmp_path)

    assert len(left) == 1
    assert not left[0].exists()


def test_an_agent_keeps_its_file(tmp_path: Path) -> None:
    """It marks the file as in use, and writes it again if it is removed."""
    place = tmp_path / "p.run.node1.json"
    target = Target(place, "run", "http://node1:9464/metrics", [], sweeps=False, refresh_s=0.01)
    target.start()
    written = place.read_bytes()
    old(place)
    wait_for(lambda: place.stat().st_mtime > time.time() - STALE_S, "it is not marked")
    place.unlink()
    wait_for(place.exists, "it is not written again")
    assert place.read_bytes() == written
    target.close()

    assert not place.exists()

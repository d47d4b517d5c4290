"""Which descendants of a trainer are its own, and which are the recorder's: with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from otel_rl.recorder.agent.hardware.recorder_processes import RecorderProcesses
from otel_rl.recorder.settings.settings import MARK_VARIABLE
from tests.collector import wait_for

_SLEEPS = "import os, sys, time; open(sys.argv[1] + '/' + sys.argv[2], 'w').write(str(os.getpid())); time.sleep(600)"
_AGENT = """
import os, subprocess, sys
place, sleeps = sys.argv[1:]
subprocess.Popen([sys.executable, "-c", sleeps, place, "autopsy"])
if not os.fork():
    os.setsid()
    subprocess.Popen([sys.executable, "-c", sleeps, place, "detached"])
"""
_TRAINER = f"""
import ctypes, os, subprocess, sys
place = sys.argv[1]
ctypes.CDLL(None).prctl(36, 1)  # like process 1 of a container: whoever loses its parent becomes its child
subprocess.Popen([sys.executable, "-c", {_SLEEPS!r}, place, "worker"])
marked = {{**os.environ, {MARK_VARIABLE!r}: "1a2b"}}
subprocess.Popen([sys.executable, "-c", {_AGENT!r}, place, {_SLEEPS!r}], env=marked)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[psutil.Process]:
    """A trainer with a worker, and an agent that has ended and left two processes, one in a session of its own."""
    process = subprocess.Popen([sys.executable, "-c", _TRAINER, str(tmp_path)], stdin=subprocess.PIPE)
    wait_for(lambda: len([one for one in tmp_path.iterdir() if one.read_text()]) == 3, "they do not run")
    yield psutil.Process(process.pid)
    for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        one.kill()
    process.communicate()


def workers(trainer: psutil.Process) -> list[int]:
    """Return the processes that count as the trainer's and sleep."""
    return [one.pid for one in RecorderProcesses().descendants(trainer) if one.status() != psutil.STATUS_ZOMBIE]


def test_what_the_agent_starts_is_not_the_trainers(trainer: psutil.Process, tmp_path: Path) -> None:
    """Also if the agent is gone, and the kernel has made the trainer the parent of what it left."""
    pids = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}

    assert {*pids.values()} <= {one.pid for one in trainer.children(recursive=True)}
    assert workers(trainer) == [pids["worker"]]


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the agent of another run."""
    monkeypatch.setenv(MARK_VARIABLE, "3c4d")


@pytest.mark.usefixtures("mark")
def test_a_trainer_that_an_agent_started(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A command of `on_event` may start a training: its worker is its own, and what its own agent starts is not."""
    trainer = request.getfixturevalue("trainer")

    assert workers(trainer) == [int((tmp_path / "worker").read_text())]


def test_the_agent_itself() -> None:
    """An agent that was started by hand has no mark."""
    assert RecorderProcesses().has(psutil.Process(os.getpid()), psutil.Process(os.getppid()))

"""An agent that dies is started again, whoever has to do it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import psutil
import pytest

import otel_rl
from otel_rl.recorder.agent import __main__ as supervisor
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.locks import Lock, is_held
from tests.collector import wait_for
from tests.processes import journal_of, remove, rows_of, start, start_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from otel_rl.recorder.directory.directory import RunDirectory

pytestmark = pytest.mark.slow

_HANGS = """
import sys, time, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", quiet=True, hardware=False)
run.log({"loss": 1.0}, step=0)
print("hangs", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[RunDirectory]:
    """Return the run of a trainer that makes no call of otel-rl."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", _HANGS], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline()
    directory = directories.at(tmp_path / "runs" / "p" / "r")
    yield directory
    trainer.kill()
    trainer.communicate()
    for process in _agents(directory):
        process.kill()


def test_an_agent_that_dies_while_the_trainer_hangs(hanging: RunDirectory) -> None:
    """An agent is back though the trainer makes no call; its log has a line for that and no traceback."""
    for _ in range(3):
        killed = agent_start.read_status(hanging).pid
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: agent_start.read_status(hanging).pid != killed, "no agent comes back", 30)  # noqa: B023

    assert agent_start.agent_is_alive(hanging)
    log = hanging.agent_log.read_text()
    assert log.count("was ended by signal 9; it is started again") == 3
    assert "Traceback" not in log


def kill_both(directory: RunDirectory) -> None:
    """Kill the agent of a run and its supervisor."""
    wait_for(lambda: len(_agents(directory)) == 2, "more or less than both")  # for a moment, git looks like its agent
    killed = _agents(directory)
    for process in killed:
        process.send_signal(signal.SIGSTOP)  # so that neither sees the other die
    for process in killed:
        process.kill()
    wait_for(lambda: not agent_start.is_looked_after(directory), "they do not die")


def _trajectory(run: otel_rl.Run) -> None:
    with run.trajectory():
        pass


@pytest.mark.parametrize(
    "call", [lambda run: run.event("x"), _trajectory, lambda run: run.table("t", {"a": [1]}, step=0)]
)
def test_whatever_the_trainer_calls(tmp_path: Path, call: Callable[[otel_rl.Run], object]) -> None:
    """A process that never logs or begins a step starts both again, too."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    directory = directories.at(run.dir)
    kill_both(directory)

    def is_back() -> bool:
        call(run)
        return agent_start.agent_is_alive(directory)

    wait_for(is_back, "no agent comes back")
    assert run.finish(30)


def test_agents_that_die_while_finish_waits(tmp_path: Path, gates: ModuleType) -> None:
    """It starts another one each time, and is true once everything is there."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False, exporters=[gates.Gated])
    directory = directories.at(run.dir)
    run.log({"loss": 1.0}, step=0)
    results: list[bool] = []
    waiting = Thread(target=lambda: results.append(bool(run.finish(120))))
    waiting.start()
    for _ in range(3):
        wait_for(lambda: agent_start.read_status(directory).failures, "the exporter is not tried")
        kill_both(directory)
        directory.status.unlink()
    (run.dir / "open").touch()
    waiting.join()

    assert results == [True]
    assert (run.dir / "gated.txt").read_text() == "0\n"


def test_an_agent_that_gives_up_while_finish_waits(
    tmp_path: Path, gates: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits no longer for what will not come, and says what is left and how to deliver it."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False, exporters=[gates.Gated], idle_timeout=1)
    run.log({"loss": 1.0}, step=0)

    assert not run.finish(math.inf)
    assert "no agent is left: gates:Gated: export failed: ConnectionError: closed; " in caplog.messages[-1]
    assert "item(s) not delivered to gates:Gated; to deliver the rest, run on " in caplog.messages[-1]


def test_an_agent_that_dies_with_its_supervisor(tmp_path: Path) -> None:
    """The trainer's next steps start both again, and every row is delivered once."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    directory = directories.at(run.dir)
    kill_both(directory)
    number = 0
    while not agent_start.agent_is_alive(directory):
        with run.step(number):
            run.log({"loss": 1.0})
        number += 1
        assert number < 3000
        time.sleep(0.01)

    assert run.finish(30)
    assert [row["step"] for row in rows_of(run.dir)] == list(range(number))


def test_the_pause_is_short_again_after_a_while(tmp_path: Path) -> None:
    """An agent that dies once an hour is not taken for one that cannot live."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    directory, session = directories.at(run.dir), run._session
    now = time.monotonic()
    for _ in range(2):
        kill_both(directory)
        now += 3600
        session._restart_dead_agent(now)
        wait_for(lambda: len(_agents(directory)) == 2, "the agent is not back", 60)
    pause_after_two = session._restart_pause
    session._restart_dead_agent(now + 3600)

    assert (pause_after_two, session._restart_pause) == (4.0, 1.0)


def test_the_trainer_waits_for_nobody(tmp_path: Path) -> None:
    """While another rank starts an agent, or a supervisor is there, a trainer starts none."""
    run = otel_rl.init(dir=tmp_path, quiet=True, agent="off")
    directory = directories.at(run.dir)
    starting = Lock(directory.start_lock)
    assert not agent_start.restart_agent(directory, show_output=False)
    starting.release()
    supervising = Lock(directory.supervisor_lock)

    assert not agent_start.restart_agent(directory, show_output=False)
    supervising.release()


def test_a_forked_child_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """A child that outlives its parent does not hold the parent's journal, which then counts as ended."""
    script = """
import os, signal, time, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", quiet=True, agent="off")
if os.fork() == 0:
    time.sleep(0.5)
    for n in range(3):
        run.log({"loss": 1.0}, step=n)
    open("done", "w").close()
    time.sleep(20)
os.kill(os.getpid(), signal.SIGKILL)
"""
    trainer = start_python(script, tmp_path)
    trainer.wait()
    wait_for((tmp_path / "done").exists, "the child does not run")

    assert not is_held(journal_of(tmp_path / "runs" / "p" / "r"))


def test_an_agent_that_dies_again_and_again(tmp_path: Path) -> None:
    """The pauses grow, and there is a limit, which is said."""
    script = """
import os, pathlib, sys
from otel_rl.recorder.agent import __main__ as supervisor
supervisor._FIRST_PAUSE_S, supervisor._MOST_DEATHS, supervisor._work = 0.1, 4, lambda *_: os._exit(7)
here = pathlib.Path(".")
sys.exit(supervisor.Supervisor(here, here, "node").run())
"""
    (tmp_path / "run.json").touch()
    process = start_python(script, tmp_path)
    _, said = process.communicate(timeout=60)

    assert process.returncode == supervisor.CRASHED
    assert [line.partition("again in ")[2][:5] for line in said.splitlines()] == ["0.1 s", "0.2 s", "0.4 s", ""]
    assert "4 times in a row; run `otel-rl agent" in said


def test_an_agent_that_cannot_start(tmp_path: Path) -> None:
    """It is not started again, and says why in one line."""
    process = start([sys.executable, supervisor.__file__, str(tmp_path), str(tmp_path), "node"], tmp_path)
    _, said = process.communicate(timeout=60)

    assert process.returncode == supervisor.CANNOT_START
    assert said.count("\n") == 1
    assert "the agent cannot start" in said


def test_a_second_supervisor(hanging: RunDirectory) -> None:
    """It leaves the run to the agent that is there."""
    command = [sys.executable, supervisor.__file__, *map(str, hanging)]
    code = subprocess.run(command, check=False, capture_output=True)

    assert code.returncode == supervisor.NOT_NEEDED
    assert b"Traceback" not in code.stderr
    assert agent_start.agent_is_alive(hanging)


def test_a_supervisor_that_is_told_to_end(hanging: RunDirectory) -> None:
    """It takes its agent along, in order."""
    agents = _agents(hanging)
    next(process for process in agents if process.pid != agent_start.read_status(hanging).pid).terminate()
    wait_for(lambda: not _agents(hanging), "they go on", 40)

    wait_for(
        lambda: not agent_start.is_looked_after(hanging), "its lock is held", 10
    )  # it loses its command line first
    assert agent_start.read_status(hanging).state == "ended"


def test_a_run_directory_that_is_removed(hanging: RunDirectory) -> None:
    """The agent and its supervisor end with it."""
    assert len(_agents(hanging)) == 2
    remove(hanging.path)

    wait_for(lambda: not _agents(hanging), "they go on", 30)  # what nobody has waited for yet has no command line


def _agents(directory: RunDirectory) -> list[psutil.Process]:
    """Return the agent of a run, and its supervisor."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if str(Path(supervisor.__file__)) in command and str(directory.path) in command:
            found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP], ids=lambda number: number.name)
def test_signals_that_are_for_the_trainer(hanging: RunDirectory, number: signal.Signals) -> None:
    """A batch system may send them to all processes of a job: supervisor and agent go on."""
    agent = psutil.Process(agent_start.read_status(hanging).pid)
    parent = agent.parent()
    assert parent is not None
    for process in (parent, agent):
        process.send_signal(number)
    agent.terminate()  # it is at work still, and ends in order
    wait_for(lambda: not is_held(hanging.agent_lock), "the agent does not end")

    assert agent_start.read_status(hanging).state == "ended"

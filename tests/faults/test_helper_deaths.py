"""Worker processes of a trainer that die or are stopped, as real processes: how the agent says that they ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from otel_rl import semconv
from otel_rl.export import Ended, Event, Process
from otel_rl.recorder.archive.now import ProcessNow, read_now
from tests.collector import wait_for
from tests.processes import items_of, start

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

_PROGRAM = """
import multiprocessing, os, signal, sys, time, otel_rl
OPTIONS = dict(id="i", project="p", dir=".", quiet=True, hardware=False, exporters=[])
def work(pipe):
    run = otel_rl.init(role="rollout", **OPTIONS)
    while True:
        task = pipe.recv()
        with run.phase("generate"):
            pipe.send("begun")
            if task == "long":
                time.sleep(600)
        if task.startswith("exit"):
            os._exit(int(task[5:]))
def killed(task):
    pipe.send(task)
    pipe.recv()
    if not task.startswith("exit"):
        time.sleep(0.5)
        os.kill(worker.pid, signal.SIGKILL)
    with run.step(1):
        time.sleep(7)
if __name__ == "__main__":
    os.setpgrp()
    run = otel_rl.init(**OPTIONS)
    pipe, other = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(other,), daemon=True)
    worker.start()
    with run.step(0):
        pipe.send("short")
        pipe.recv()
    time.sleep(1)
    {then}
"""

Said = tuple[str | None, str, int]
"""Outcome, cause and exit code of a process."""


def ended(place: Path, then: str) -> tuple[Said, list[str], str]:
    """Run a trainer with a worker; return how the worker ended, the events of processes, and how the run ended."""
    (place / "program.py").write_text(_PROGRAM.replace("{then}", then))
    output, errors = start([sys.executable, "program.py"], place).communicate(timeout=150)
    run = place / "p" / "i"
    wait_for(lambda: any(isinstance(item, Ended) for item in items_of(run)), f"no end: {output}{errors}", 60)
    items = items_of(run)
    worker = [item for item in items if isinstance(item, Process) and item.role][-1]
    events = [item.name for item in items if isinstance(item, Event) and item.name.startswith("rl.process.")]
    end = [item for item in items if isinstance(item, Ended)][-1]
    return (worker.outcome, worker.cause, worker.exit_code), events, end.outcome


@pytest.mark.parametrize(
    "then",
    [
        "worker.terminate(); worker.join(); run.finish(60)",
        "worker.kill(); worker.join()",
        "pipe.send('long'); pipe.recv(); worker.terminate(); worker.join()",
        "pipe.send('long'); pipe.recv(); worker.kill(); run.finish(60)",
        "run.finish(60); time.sleep(5); worker.kill(); worker.join()",
        "run.finish(60)  # and multiprocessing ends its daemon",
        "pass",
    ],
)
def test_a_worker_that_the_trainer_stops_at_its_end(tmp_path: Path, then: str) -> None:
    """It has finished, whether it worked or not, and whatever signal ended it: nobody is accused."""
    (outcome, cause, _), events, end = ended(tmp_path, then)

    assert (outcome, end, events) == ("finished", "finished", [])
    assert cause == "stopped"


@pytest.mark.parametrize(
    ("then", "said", "event"),
    [
        ("killed('short')", ("lost", "signal", 137), semconv.EVENT_PROCESS_LOST),
        ("killed('long')", ("lost", "signal", 137), semconv.EVENT_PROCESS_LOST),
        ("killed('exit 3')", ("failed", "exit", 3), semconv.EVENT_PROCESS_FAILED),
    ],
)
def test_a_worker_that_dies_while_the_trainer_goes_on(tmp_path: Path, then: str, said: Said, event: str) -> None:
    """It has died, in a phase or between two; the trainer, which went on without it, has finished."""
    assert ended(tmp_path, then) == (said, [event], "finished")


def test_a_worker_that_ends_itself_well(tmp_path: Path) -> None:
    """A process whose exit status is 0 has not died, though it reported no end."""
    assert ended(tmp_path, "killed('exit 0')") == (("finished", "exit", 0), [], "finished")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """A batch system or Ctrl-C signals all processes of the job: it is cancelled."""
    handler = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell may have it ignored
    then = f"{handler}; os.killpg(0, {int(number)}); time.sleep(60)"
    (outcome, _, _), events, end = ended(tmp_path, then)

    assert (outcome, end) == ("cancelled", "cancelled")
    assert events == [semconv.EVENT_PROCESS_FAILED]


def test_what_a_live_run_says_of_a_dead_worker(tmp_path: Path) -> None:
    """The state of the run has its cause, the phase in which it died, and its place among the deaths."""
    (tmp_path / "program.py").write_text(_PROGRAM.replace("{then}", "pipe.send('long'); time.sleep(120)"))
    program = start([sys.executable, "program.py"], tmp_path)

    def worker() -> ProcessNow | None:
        found = [one for now in read_now(tmp_path / "p" / "i") for one in now.processes if one.role]
        return found[0] if found else None

    def generates() -> bool:
        return (one := worker()) is not None and bool(one.phases)

    def has_ended() -> bool:
        return (one := worker()) is not None and one.outcome is not None

    try:
        wait_for(generates, "it does not generate", 60)
        before = time.time_ns()
        known = worker()
        assert known is not None
        os.kill(known.pid, signal.SIGKILL)
        wait_for(has_ended, "nobody says that it died", 60)
    finally:
        program.kill()
        program.communicate(timeout=60)
    dead = worker()
    assert dead is not None
    assert (dead.outcome, dead.cause, dead.exit_code, dead.ended_phase) == ("lost", "signal", 137, "generate")
    assert dead.down_order == 1
    assert dead.ended_unix_nano is not None
    assert before - 2e9 < dead.ended_unix_nano < time.time_ns()

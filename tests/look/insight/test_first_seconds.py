"""A run is live from its first second, whatever its agent has written: the state of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import otel_rl
from otel_rl.look.insight import facts_of
from otel_rl.look.terminal.listing import runs_below
from otel_rl.recorder.archive.now import read_now
from tests.collector import wait_for
from tests.processes import start as started

_TRAINS = """
import os, sys, time, otel_rl
run = otel_rl.init(project="p", id="it", dir="runs", hardware=False, quiet=True, **eval(sys.argv[1]))
print(run.attempt, flush=True)
sys.stdin.readline()
with run.step(0):
    run.log({"reward": 1.0})
print("step", flush=True)
sys.stdin.readline()
"""


def start(directory: Path, options: str = "{}") -> subprocess.Popen[str]:
    """Start a training, which waits for a line before its step and before its end, and return when it records."""
    script = f"import sys; sys.argv = ['train.py', {options!r}]\n{_TRAINS}"
    command = [sys.executable, "-c", script]
    process = started(command, directory, stdin=subprocess.PIPE, OTEL_RL_IDLE_TIMEOUT="1")
    assert process.stdout is not None
    assert process.stdout.readline().strip().isdigit()
    return process


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def states(directory: Path, at: int | None = None) -> set[tuple[str, str]]:
    """Return the state and the sentence of the run, by `ls` and by its facts."""
    at = time.time_ns() if at is None else at
    (present,) = runs_below([directory / "runs"], at)
    facts = facts_of(otel_rl.open_run(directory / "runs" / "p" / "it"), at_unix_nano=at)
    (outcome,) = (finding for finding in facts.findings if finding.kind == "outcome")
    return {(present.state, present.sentence), (facts.summary.state, outcome.sentence)}


def kill(process: subprocess.Popen[str], directory: Path) -> None:
    """Kill a training and its agent."""
    for now in read_now(directory / "runs" / "p" / "it"):
        os.kill(now.pid, signal.SIGKILL)
    process.kill()
    process.communicate()


def test_before_any_agent_has_written(tmp_path: Path) -> None:
    """An agent may take half a minute to load, and a process of this machine lives however long it takes."""
    process = start(tmp_path, "{'agent': 'off'}")
    later = time.time_ns() + 3600 * 10**9
    lives = states(tmp_path), states(tmp_path, later)
    process.kill()
    process.communicate()

    assert lives == ({("live", "Starts: no agent has written yet.")},) * 2
    assert (
        states(tmp_path)
        == states(tmp_path, later)
        == {("lost", "Died before its first step: no agent has read what it recorded.")}
    )


def test_before_the_first_step(tmp_path: Path) -> None:
    """A run whose processes have started is live, and has no step."""
    process = start(tmp_path)
    run = tmp_path / "runs" / "p" / "it"
    wait_for(lambda: any(now.processes for now in read_now(run)), "no agent has written", 60)
    ((state, sentence),) = states(tmp_path)
    kill(process, tmp_path)

    assert state == "live"
    assert sentence.endswith(", before its first step.")


def test_an_agent_that_does_not_run(tmp_path: Path) -> None:
    """A run is not lost while its process lives: its agent is stopped, and has written nothing for an hour."""
    process = start(tmp_path)
    run = tmp_path / "runs" / "p" / "it"
    wait_for(lambda: any(now.processes for now in read_now(run)), "no agent has written", 60)
    (now,) = read_now(run)
    os.kill(now.pid, signal.SIGSTOP)
    later = time.time_ns() + 3600 * 10**9
    lives = states(tmp_path, later)
    kill(process, tmp_path)
    gone = states(tmp_path, later)

    assert lives == {("live", "Its agent has written nothing for 1 h: 0 steps in 1 h.")}
    assert {state for state, _ in gone} == {"lost"}
    assert len(gone) == 1


def test_a_second_attempt_before_its_agent_has_written(tmp_path: Path) -> None:
    """The end that is known is the first attempt's: the run goes on."""
    process = start(tmp_path)
    go_on(process)
    process.communicate("\n")
    run = tmp_path / "runs" / "p" / "it"
    wait_for(lambda: any(now.has_everything for now in read_now(run)), "the agent did not end", 60)
    assert {state for state, _ in states(tmp_path)} == {"finished"}
    process = start(tmp_path, "{'agent': 'off'}")
    resumes = states(tmp_path)
    process.kill()
    process.communicate()

    assert resumes == {("live", "Resumes: no agent has written yet.")}
    assert {state for state, _ in states(tmp_path, time.time_ns() + 3600 * 10**9)} == {"finished"}


def test_a_live_run_with_rows_alone(tmp_path: Path) -> None:
    """Its agent writes no state for viewers: the lock of its process says that it lives."""
    process = start(tmp_path, "{'archive_limit': 0, 'exporters': ['jsonl']}")
    go_on(process)
    rows = tmp_path / "runs" / "p" / "it" / "rows.jsonl"
    wait_for(lambda: rows.exists() and rows.stat().st_size > 0, "there is no row", 60)
    ((state, sentence),) = states(tmp_path, time.time_ns() + 3600 * 10**9)
    kill(process, tmp_path)

    assert state == "live"
    assert ": 1 step, " in sentence

"""`now.json`: what is open in a run, from its first second to its end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.archive.now import PhaseNow, read_now
from tests.collector import wait_for
from tests.processes import start_python

_HANGS = """
import time, otel_rl
run = otel_rl.init(project="p", id="hangs", dir="runs", hardware=False)
with run.step(7), run.phase("generate"):
    print("open", time.time_ns(), flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_process_that_hangs_and_is_killed(tmp_path: Path) -> None:
    """The file names its step and its open phase with their starts, then how it ended."""
    process = start_python(_HANGS, tmp_path, OTEL_RL_IDLE_TIMEOUT="1")
    assert process.stdout is not None
    opened = int(process.stdout.readline().split()[1])
    run = tmp_path / "runs" / "p" / "hangs"
    wait_for(lambda: any(one.phases for now in read_now(run) for one in now.processes), "no open phase", 60)
    ((now,), before_its_end) = read_now(run), time.time_ns()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: read_now(run)[0].state == "ended", "the agent did not end", 60)
    (last,) = read_now(run)

    ((one,), (ended,)) = now.processes, last.processes
    assert (one.rank, one.role, one.pid, one.step, one.outcome) == (0, "", process.pid, 7, None)
    assert one.phases == (PhaseNow("generate", one.phases[0].started_unix_nano),)
    assert one.step_started_unix_nano is not None
    assert one.step_started_unix_nano <= one.phases[0].started_unix_nano <= opened < now.time_unix_nano
    assert now.time_unix_nano < before_its_end
    assert [(exporter.name, exporter.waiting) for exporter in now.exporters] == [("jsonl", 0), ("archive", 0)]
    assert (ended.outcome, ended.step, ended.phases) == ("lost", None, ())


def test_a_run_that_has_ended(tmp_path: Path) -> None:
    """The last state says so, and what exporters have accepted."""
    run = otel_rl.init(project="p", dir=str(tmp_path), hardware=False)
    run.log({"loss": 0.5}, step=0)
    assert run.finish()
    wait_for(lambda: read_now(run.dir)[0].state == "ended", "the agent did not end", 60)
    (now,) = read_now(run.dir)

    assert (now.state, now.id, now.project) == ("ended", run.id, "p")
    assert [(one.name, one.waiting, one.failures) for one in now.exporters] == [("jsonl", 0, 0), ("archive", 0, 0)]
    assert [one.outcome for one in now.processes] == ["finished"]


def test_a_run_without_an_archive(tmp_path: Path) -> None:
    """It has no such file, nor any other file of an archive."""
    run = otel_rl.init(project="p", dir=str(tmp_path), hardware=False, archive_limit=0)
    run.log({"loss": 0.5}, step=0)
    assert run.finish()

    assert not (run.dir / "archive").exists()
    assert read_now(run.dir) == []

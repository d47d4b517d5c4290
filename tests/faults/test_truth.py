"""Losses show in the exit code, in the status, in the result of `finish`, and on the metrics endpoint."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.agent.steps.bounds import MOST_OPEN
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.records import Consumed, Finished
from otel_rl.recorder.journal.writer import Writer
from tests.collector import wait_for
from tests.faults import hostile
from tests.faults.sane import T0, losses, started, steps
from tests.processes import local_of, rows_of

BAD = Consumed(1, T0, "trained", 0, b"\0" * 24, b"\0" * 16, b"")


def once(run_dir: Path) -> tuple[int, str]:
    """Return exit code and standard error of `otel-rl agent RUN --once`."""
    command = [sys.executable, "-m", "otel_rl.cli", "agent", str(run_dir), "--once"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    return process.returncode, process.stderr


def record_poison(run_dir: Path) -> None:
    """Write a journal with a bad record; it has its name only when it is whole, or it would look abandoned."""
    journals = local_of(run_dir) / "journals"
    fresh = journals / ".rollout"
    fresh.mkdir()
    writer = Writer(fresh)
    for record in (started(), BAD, Finished(T0)):
        writer.append(record)
    writer.close()
    fresh.rename(journals / "rollout.attempt0")


@pytest.mark.slow
def test_the_exit_code_says_that_something_is_lost(tmp_path: Path) -> None:
    """1 with the reason, at each start; 0 where nothing is lost."""
    good = hostile.recorded(tmp_path / "good", {"rank0.attempt1": [started(), *steps(0, 1), Finished(T0)]}, ["jsonl"])
    bad = hostile.recorded(tmp_path / "bad", {"rank0.attempt1": [started(), BAD, *steps(0), Finished(T0)]}, ["jsonl"])

    assert once(good.dir)[0] == 0
    for _ in range(2):
        code, said = once(bad.dir)
        assert code == 1
        assert "1 quarantined lost" in said


def test_the_process_of_an_agent_says_so_too(tmp_path: Path) -> None:
    """As the trainer starts it."""
    run = hostile.recorded(tmp_path, {"rank0.attempt1": [started(), BAD, *steps(0), Finished(T0)]}, ["jsonl"])
    command = [sys.executable, "-m", "otel_rl.recorder.agent", *map(str, directories.at(run.dir))]

    assert subprocess.run(command, capture_output=True, timeout=100, check=False).returncode == 1


@pytest.mark.slow
def test_each_loss_has_its_fix(tmp_path: Path) -> None:
    """Spans that were never recorded can be delivered by no command, so `finish` names the fix instead."""
    run = otel_rl.init(dir=tmp_path, quiet=True, exporters=["jsonl"])
    with run.step(0), ExitStack() as phases:
        for _ in range(MOST_OPEN + 50):
            phases.enter_context(run.phase("generate"))
    result = run.finish(60)

    assert result.missing == "50 open_spans lost (too many were open at once; end them: use `with`)"


def test_finish_and_the_metrics_endpoint_say_so(tmp_path: Path) -> None:
    """A bad record: `rl_telemetry_dropped_total` has the reason, and `finish` is false; all rows are there."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False, exporters=["jsonl"])
    run.log({"loss": 1.0}, step=0)
    record_poison(run.dir)

    def dropped() -> float:
        page = urllib.request.urlopen(str(agent_start.read_status(directories.at(run.dir)).prometheus)).read().decode()
        found = re.search(r'rl_telemetry_dropped_\w*{[^}]*error_type="quarantined"[^}]*} (\S+)', page)
        return 0.0 if found is None else float(found[1])

    wait_for(lambda: dropped() == 1.0, "the page does not say so")
    assert not run.finish(20)
    assert [row["values"]["loss"] for row in rows_of(run.dir)] == [1.0]  # type: ignore[index]


def test_a_record_in_whose_middle_a_process_was_killed_is_not_lost(tmp_path: Path) -> None:
    """Its call had not returned: cut anywhere, the run is complete."""
    journal = [started(), *steps(0, 1)]
    for missing in (1, 5, 20):
        run = hostile.recorded(tmp_path / str(missing), {"rank0.attempt1": journal}, ["jsonl"])
        segment = local_of(run.dir) / "journals" / "rank0.attempt1" / "00000001.seg"
        content = segment.read_bytes()
        segment.write_bytes(content[:-missing] + bytes(4096))

        assert run_agent(run.dir, once=True)
        assert losses(run.dir) == [0, 1]


def test_a_last_record_with_a_flipped_bit_is_lost(tmp_path: Path) -> None:
    """Though its process was killed too: it had been written to its end."""
    run = hostile.recorded(tmp_path, {"rank0.attempt1": [started(), *steps(0, 1)]}, ["jsonl"])
    segment = local_of(run.dir) / "journals" / "rank0.attempt1" / "00000001.seg"
    content = bytearray(segment.read_bytes() + bytes(4096))
    content[-4096 - 8] ^= 4
    segment.write_bytes(content)

    assert run_agent(run.dir, once=True) is False
    assert agent_start.read_status(directories.at(run.dir)).lost.keys() == {"torn_bytes"}

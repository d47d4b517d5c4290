"""Two accidents at random moments of one run: files are removed, emptied or moved, or the agent is killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.processes import local_of, rows_of

STEPS = 200
REMOVED = ["local", "journals", "cursors", "outbox", "attempts"]


def happen(what: str, run_dir: Path) -> None:
    """Let an accident happen to a run that is being recorded."""
    with contextlib.suppress(OSError):
        if what == "empty":
            for segment in (local_of(run_dir) / "outbox").glob("*.seg"):
                os.truncate(segment, 0)
        elif what == "move":
            run_dir.rename(f"{run_dir}-moved")
        elif what == "kill":
            if pid := agent_start.read_status(directories.at(run_dir)).pid:
                os.kill(pid, signal.SIGKILL)
        else:
            place = run_dir if what in ("local", "attempts") else local_of(run_dir)
            shutil.rmtree(place / what, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_accidents(tmp_path: Path, seed: int) -> None:
    """Every row is in JSONL, once, and `finish` says so."""
    dice = random.Random(seed)
    accidents = {dice.randrange(30, 170): dice.choice([*REMOVED, "empty", "move", "kill"]) for _ in range(2)}
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    for n in range(STEPS):
        with run.step(n):
            run.log({"loss": float(n)})
        time.sleep(0.03)
        if n in accidents:
            happen(accidents[n], run.dir)

    assert run.finish(60), accidents
    assert [row["step"] for row in rows_of(run.dir)] == [*range(STEPS)], accidents

"""Every line that processes print into a file is there once and in order, whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from otel_rl import open_run

pytestmark = pytest.mark.slow

TRAINER = """
import sys, time, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", exporters=[], quiet=True, hardware=False, archive_limit=1 << 40,
                   output={"per_second": 10_000_000, "limit": 1 << 40})
for step in range(40):
    with run.step(step):
        print("\\n".join(f"line {step * 500 + number}" for number in range(500)), flush=True)
        time.sleep(0.1)
print("the end", flush=True)
if "dies" in sys.argv:
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
run.finish(60)
"""
LINES = [*(f"line {number}" for number in range(20_000)), "the end"]


def agents_of(run: Path) -> list[psutil.Process]:
    """Return the agent of a run and its supervisor."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(run) in " ".join(process.cmdline()) and process.pid != os.getpid():
                found.append(process)
    return found


@pytest.mark.parametrize("ending", ["finishes", "dies"])
def test_kills_while_lines_come(tmp_path: Path, ending: str) -> None:
    """The agent is killed four times, with its supervisor half of the time; the trainer ends well or by SIGKILL."""
    run, rng = tmp_path / "runs" / "p" / "r", random.Random(7)
    with (tmp_path / "out").open("w") as file:
        trainer = subprocess.Popen([sys.executable, "-c", TRAINER, ending], cwd=tmp_path, stdout=file)
        for _ in range(4):
            time.sleep(rng.uniform(0.8, 1.6))
            for process in agents_of(run)[: 1 if rng.random() < 0.5 else 2]:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        trainer.wait()
    subprocess.run([sys.executable, "-m", "otel_rl.cli", "agent", str(run), "--once"], check=False, timeout=120)
    logs = open_run(run).sql("SELECT text, rank FROM logs WHERE stream = 'stdout' ORDER BY number")

    assert [*logs["text"]] == LINES
    assert {*logs["rank"]} == {0}


def test_the_next_attempt_appends_to_the_file(tmp_path: Path) -> None:
    """A job that starts again, and appends to its file, has the lines of each attempt once."""
    script = """
import otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", exporters=[], quiet=True, hardware=False)
with run.step(0):
    print("attempt", run.attempt, flush=True)
run.finish(60)
"""
    for _ in range(2):
        with (tmp_path / "out").open("a") as file:
            subprocess.run([sys.executable, "-c", script], cwd=tmp_path, stdout=file, check=True)
    logs = open_run(tmp_path / "runs" / "p" / "r").logs()

    assert [*zip(logs["attempt"], logs["text"], strict=True)] == [(0, "attempt 0"), (1, "attempt 1")]

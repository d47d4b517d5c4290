"""Every line that processes print into a file is there once and in order, whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from otel_rl import open_run
from tests.collector import wait_for
from tests.samples import of

pytestmark = pytest.mark.slow

RANKS, STEPS = of((2, 40), (16, 125))
TRAINER = """
import sys, time, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", exporters=[], quiet=True, hardware=False, archive_limit=1 << 40,
                   output={"per_second": 10_000_000, "limit": 1 << 40})
for step in range(int(sys.argv[2])):
    with run.step(step):
        print("\\n".join(f"line {step * 500 + number}" for number in range(500)), flush=True)
        time.sleep(0.1)
print("the end", flush=True)
if sys.argv[1] == "dies":
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
run.finish(60)
"""


def agents_of(run: Path) -> list[psutil.Process]:
    """Return the agent of a run and its supervisor."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(run) in " ".join(process.cmdline()) and process.pid != os.getpid():
                found.append(process)
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ending", ["finishes", "dies", "is killed with its agent"])
def test_kills_while_lines_come(tmp_path: Path, ending: str) -> None:
    """The agent is killed four times, with its supervisor half of the time; `ALL_SAMPLES=1` has a million lines."""
    run, rng = tmp_path / "runs" / "p" / "r", random.Random(7)
    place = os.environ | {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "OTEL_RL_RUN_ID": "r"}
    ranks = []
    for rank in map(str, range(RANKS)):
        with (tmp_path / rank).open("w") as file:
            command = [sys.executable, "-c", TRAINER, ending, str(STEPS)]
            ranks.append(
                subprocess.Popen(command, cwd=tmp_path, stdout=file, env=place | {"RANK": rank, "LOCAL_RANK": rank})
            )
    files, size = [tmp_path / str(rank) for rank in range(RANKS)], len("line 12345\n") * 500 * STEPS * RANKS
    for share in sorted(rng.uniform(0.05, 0.9) for _ in range(4)):
        wait_for(lambda share=share: sum(one.stat().st_size for one in files) > share * size, "no lines come", 600)
        for process in agents_of(run)[: 1 if rng.random() < 0.5 else 2]:
            with contextlib.suppress(psutil.Error):
                process.kill()
    if ending == "is killed with its agent":
        for pid in (*(one.pid for one in ranks), *(one.pid for one in agents_of(run))):
            os.kill(pid, signal.SIGKILL)
    for trainer in ranks:
        trainer.wait()
    wait_for(lambda: not agents_of(run), "the agent does not end", 600)
    subprocess.run([sys.executable, "-m", "otel_rl.cli", "agent", str(run), "--once"], check=False, timeout=900)
    logs = open_run(run).sql("SELECT text, rank FROM logs WHERE stream = 'stdout' ORDER BY rank, number")
    printed = [(text, rank) for rank, file in enumerate(files) for text in file.read_text().splitlines()]

    assert len(printed) > RANKS
    assert [*zip(logs["text"], logs["rank"], strict=True)] == printed


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

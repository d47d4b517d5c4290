"""A run that is killed and goes on from a checkpoint: its rows and its history, from real processes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.process import run_agent
from tests.processes import rows_of, run, start

TRAINER = """
import os, signal, sys, otel_rl
begin, end, killed = map(int, sys.argv[1:])
run = otel_rl.init(
    id="run", project="p", dir=".", exporters=["jsonl"], agent="off", hardware=False, quiet=True
)
for n in range(begin, end):
    with run.step(n), run.phase("train"):
        run.log({"x": float(n), "attempt": float(run.attempt)})
        if killed and n == end - 1:
            os.kill(os.getpid(), signal.SIGKILL)
run.finish(0)
"""


def killed_and_resumed(directory: Path) -> Path:
    """Return the run of a trainer that was killed in step 12 and went on at step 8; read by two agents."""
    process = start([sys.executable, "-c", TRAINER, "1", "13", "1"], directory)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert run_agent(directory / "p" / "run", once=True)
    run([sys.executable, "-c", TRAINER, "8", "18", "0"], directory)
    assert run_agent(directory / "p" / "run", once=True)
    return directory / "p" / "run"


@pytest.mark.slow
def test_the_killed_step_is_partial_and_the_history_has_each_step_once(tmp_path: Path) -> None:
    """The rows say which attempt they are of; the steps that were repeated are those of the second one."""
    run_dir = killed_and_resumed(tmp_path)
    history = otel_rl.open_run(run_dir)

    assert [(row["step"], row["attempt"]) for row in rows_of(run_dir)] == [
        *[(n, 0) for n in range(1, 13)],
        *[(n, 1) for n in range(8, 18)],
    ]
    assert [row["step"] for row in rows_of(run_dir) if row.get("partial")] == [12]
    values = history.rows("attempt")
    assert [*zip(values["step"], values["value"], strict=True)] == [(n, float(n >= 8)) for n in range(1, 18)]
    assert not history.sql("SELECT partial FROM steps")["partial"].any()

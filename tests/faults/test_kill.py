"""SIGKILL, at any moment, to the trainer and to the agent."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import time
from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl import launch
from otel_rl.directory import RunDirectory
from otel_rl.export import Span
from tests.collector import wait_for
from tests.exporters import wandb_file
from tests.processes import items_of, rows_of, run_python, start_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 50
TRAINER = """
import mmap, os, struct, time, otel_rl
attempt = int(os.environ["ATTEMPT"])
exporters = ["jsonl", "tensorboard", "wandb"]
run = otel_rl.init(dir="runs", project="kill", id="killed", exporters=exporters, hardware=False, quiet=True)
with open("progress", "r+b") as file:
    progress = mmap.mmap(file.fileno(), 8)
for n in range(10**6):
    step = attempt * 10**6 + n
    with run.step(step):
        with run.phase("generate"):
            run.log({"loss": step / 3, "reward": 1.0})
            progress[:] = struct.pack("<q", step)
        if n % 50 == 0:
            time.sleep(0.002)
"""


@needs("wandb")
@needs("tensorboard")
@pytest.mark.timeout(600)
def test_what_log_returned_from_is_in_every_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 kills at random moments: every `log` that had returned is delivered, once and in order."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    moments = random.Random(7)
    progress = tmp_path / "progress"
    returned: list[int] = []
    for attempt in range(KILLS):
        progress.write_bytes(struct.pack("<q", -1))
        trainer = start_python(TRAINER, tmp_path, ATTEMPT=str(attempt), OTEL_RL_IDLE_TIMEOUT="30")
        with progress.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shown:
            wait_for(lambda shown=shown: _number(shown) >= 0, "the trainer does not log")  # type: ignore[misc]
            time.sleep(moments.uniform(0, 0.05))
            trainer.send_signal(signal.SIGKILL)
            trainer.wait()
            returned.append(_number(shown))
    run_dir = next((tmp_path / "runs" / "kill").iterdir())
    run_python(
        "import otel_rl; run = otel_rl.init(dir='runs', project='kill', id='killed', quiet=True,"
        " exporters=['jsonl', 'tensorboard', 'wandb']); assert run.finish(120), run.dir",
        tmp_path,
    )

    steps = [row["step"] for row in rows_of(run_dir)]
    for attempt, last in enumerate(returned):
        of_attempt = [step for step in steps if step // 10**6 == attempt]  # type: ignore[operator]
        assert of_attempt[: last - attempt * 10**6 + 1] == list(range(attempt * 10**6, last + 1))
        assert len(of_attempt) - (last - attempt * 10**6 + 1) in (0, 1)  # the one that had not returned may be there
    events = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    assert [event.step for event in events.Scalars("loss")] == steps
    wandb_file.wait_until_written(str(run_dir))
    logged = [row for file in wandb_file.files(str(run_dir)) for row in wandb_file.history(file)]
    assert [int(row["step"]) for row in logged] == steps
    lost = [item for item in items_of(run_dir) if isinstance(item, Span) and item.error == "rl.process.lost"]
    assert len({span.trace_id for span in lost if span.name == "rl.loop"}) > KILLS / 2  # most died inside a step


def test_an_open_phase_becomes_an_error_span(tmp_path: Path) -> None:
    """What was open when the process died ends as `rl.process.lost`, with the phase named in the event."""
    script = """
import os, otel_rl
run = otel_rl.init(dir="runs", quiet=True, idle_timeout=0.3)
with run.step(3), run.phase("generate"):
    run.log({"loss": 1.0})
    os.kill(os.getpid(), 9)
"""
    start_python(script, tmp_path).wait()
    run_dir = _only_run(tmp_path)
    wait_for(lambda: launch.read_status(RunDirectory(run_dir)).state == "ended", "the agent does not end")

    errors = {item.name: item.error for item in items_of(run_dir) if isinstance(item, Span)}
    assert errors == {"rl.sample": "rl.process.lost", "rl.loop": "rl.process.lost"}
    assert [row["values"]["loss"] for row in rows_of(run_dir)] == [1.0]  # type: ignore[index]


def test_the_agent_outlives_the_signals_of_its_trainer(tmp_path: Path) -> None:
    """Ctrl-C to the trainer's process group does not reach the agent."""
    script = """
import os, signal, time, otel_rl
run = otel_rl.init(dir="runs", quiet=True, idle_timeout=60)
run.log({"loss": 1.0}, step=0)
print(run.dir, flush=True)
os.setpgid(0, 0)
os.killpg(0, signal.SIGKILL)
"""
    trainer = start_python(script, tmp_path)
    trainer.wait()
    directory = RunDirectory(_only_run(tmp_path))
    time.sleep(0.3)

    assert launch.agent_is_alive(directory)
    os.kill(launch.read_status(directory).pid, signal.SIGTERM)
    wait_for(lambda: not launch.agent_is_alive(directory), "the agent does not end at SIGTERM")


@pytest.mark.timeout(120)
def test_an_agent_that_was_killed_is_replaced_without_loss_or_repetition(tmp_path: Path) -> None:
    """`finish` starts another agent, which goes on where the first one was killed."""
    run = otel_rl.init(dir=tmp_path, quiet=True)
    directory = RunDirectory(run.dir)
    for n in range(300):
        with run.step(n):
            run.log({"loss": float(n)})
        if n == 150:
            wait_for(lambda: len(rows_of(run.dir)) >= 150, "not all is delivered")
            time.sleep(0.5)  # for the cursor: between a row and its cursor it may be delivered twice
            before = launch.read_status(directory).pid
            os.kill(before, signal.SIGKILL)
            wait_for(lambda: launch.read_status(directory).pid != before, "the agent is not replaced", 20)  # noqa: B023

    assert run.finish(30)
    assert [row["step"] for row in rows_of(run.dir)] == list(range(300))


def _number(shown: mmap.mmap) -> int:
    return int(struct.unpack("<q", shown[:])[0])


def _only_run(directory: Path) -> Path:
    return next(path for path in (directory / "runs").glob("[!.]*/*"))

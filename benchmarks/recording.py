"""Runs of otel-rl to be measured, and the end of their agents."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PHASES = ("generate", "reward", "old_log_prob", "advantage", "update_actor")


@contextmanager
def directory() -> Iterator[Path]:
    """Make a directory that is gone when this is left."""
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as name:
        yield Path(name)


@contextmanager
def recording(
    *, exporters: Sequence[str] = ("jsonl",), metrics: str = "none", content: bool = False
) -> Iterator[otel_rl.Run]:
    """Record a run with its agent; both are gone when this is left. No OTLP unless the environment says so."""
    os.environ["OTEL_METRICS_EXPORTER"] = metrics
    os.environ["OTEL_RL_IDLE_TIMEOUT"] = "2"
    with directory() as place:
        how = {"exporters": exporters, "content": content, "quiet": True}
        run = otel_rl.init(project="benchmark", dir=place, rank=0, world_size=1, **how)
        try:
            yield run
        finally:
            run.finish(30)
            end_agent(run.dir)
            del os.environ["OTEL_RL_IDLE_TIMEOUT"]  # other agents of this process may need longer, to import W&B


def start_ranks(script: str, place: Path, world: int) -> list[subprocess.Popen[str]]:
    """Start the ranks of a training on this machine, which each run a script in a directory."""
    shared = {
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OTEL_RL_RUN_ID": "benchmark",
        "OTEL_METRICS_EXPORTER": "none",
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=place,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def end_agent(run_directory: Path, within_s: float = 40.0) -> None:
    """End the run's agent and wait until it is gone."""
    found = directories.at(run_directory)
    pid = agent_start.read_status(found).pid
    deadline = time.monotonic() + within_s
    while pid and agent_start.agent_is_alive(found) and time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(pid, 15)
        time.sleep(0.05)


def record_step(run: otel_rl.Run, number: int, values: dict[str, float]) -> int:
    """Record a step of five phases; return how many nanoseconds its `log` took."""
    with run.step(number):
        for name in PHASES:
            with run.phase(name):
                pass
        began = time.perf_counter_ns()
        run.log(values)
        return time.perf_counter_ns() - began

"""Runs of otel-rl to be measured, and the end of their agents."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import otel_rl
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PHASES = ("generate", "reward", "old_log_prob", "advantage", "update_actor")


@contextmanager
def recording(
    directory: Path, *, exporters: Sequence[str] = ("jsonl",), metrics: str = "none"
) -> Iterator[otel_rl.Run]:
    """Record a run with its agent, which is gone when this is left; no OTLP unless the environment says so."""
    os.environ["OTEL_METRICS_EXPORTER"] = metrics
    os.environ["OTEL_RL_IDLE_TIMEOUT"] = "2"
    run = otel_rl.init(project="benchmark", dir=directory, exporters=exporters, quiet=True, rank=0, world_size=1)
    try:
        yield run
    finally:
        run.finish(30)
        end_agent(run.dir)


def end_agent(run_directory: Path, within_s: float = 40.0) -> None:
    """End the run's agent and wait until it is gone."""
    directory = directories.at(run_directory)
    pid = agent_start.read_status(directory).pid
    deadline = time.monotonic() + within_s
    while pid and agent_start.agent_is_alive(directory) and time.monotonic() < deadline:
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

"""What the agent costs the machine: CPU seconds, memory, and how fast it works off a backlog."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

import otel_rl
from benchmarks.peers import batches
from benchmarks.recording import record_step, recording
from benchmarks.tables import Cell, Table
from otel_rl import launch
from otel_rl.directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS, _ROUNDS, _WATCHED_S = 1000, 3, 10.0
_DESTINATIONS: dict[str, tuple[str, ...]] = {
    "jsonl and tensorboard": ("jsonl", "tensorboard"),
    "jsonl": ("jsonl",),
    "tensorboard": ("tensorboard",),
    "no destination": (),
}


class _Usage(NamedTuple):
    cpu_s: float
    wall_s: float


def measure() -> list[Table]:
    """Return the cost of a backlog of steps, and of an agent at work beside a trainer."""
    return [_backlogs(), _beside_a_trainer()]


def _backlogs() -> Table:
    found: dict[str, list[_Usage]] = {name: [] for name in _DESTINATIONS}
    for _ in range(_ROUNDS):
        for name, exporters in _DESTINATIONS.items():
            empty, full = _drain(exporters, 1), _drain(exporters, 1 + _STEPS)
            found[name].append(_Usage(full.cpu_s - empty.cpu_s, full.wall_s - empty.wall_s))
    rows: list[list[Cell]] = []
    for name, usages in found.items():
        cpu_s = statistics.median(usage.cpu_s for usage in usages)
        wall_s = statistics.median(usage.wall_s for usage in usages)
        rows.append([name, cpu_s, wall_s, _STEPS / wall_s])
    columns = ["destinations", "CPU s per 1,000 steps", "wall s", "steps per second"]
    note = (
        f"Steps of 100 floats and 5 phases, without the agent's start (one step's run is subtracted); {_ROUNDS} rounds."
    )
    return Table("Working off a backlog", columns, rows, note)


def _drain(exporters: tuple[str, ...], steps: int) -> _Usage:
    """Record without an agent, then let one work until all is delivered."""
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as name:
        run = otel_rl.init(dir=name, exporters=exporters, agent="off", quiet=True)
        values = batches()
        for number in range(steps):
            record_step(run, number, next(values))
        run.finish()
        environment = os.environ | {"OTEL_METRICS_EXPORTER": "none"}
        before, began = _children_cpu_s(), time.perf_counter()
        with (run.dir / "agent.log").open("wb") as log:
            command = [sys.executable, "-m", "otel_rl.agent", str(run.dir)]
            subprocess.run(command, env=environment, stderr=log, check=True)
        return _Usage(_children_cpu_s() - before, time.perf_counter() - began)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _beside_a_trainer() -> Table:
    rows: list[list[Cell]] = []
    with (
        tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as name,
        recording(Path(name), exporters=["jsonl", "tensorboard"], metrics="prometheus") as run,
    ):
        agent = psutil.Process(launch.read_status(RunDirectory(run.dir)).pid)
        rows.append(_watch("nothing recorded", agent, lambda: time.sleep(_WATCHED_S)))
        rows.append(_watch("1 step per second", agent, lambda: _steps(run, 0, 10, 1.0)))
        rows.append(_watch("10 steps per second", agent, lambda: _steps(run, 10, 100, 0.1)))
        rows.append(_watch("100 steps per second", agent, lambda: _steps(run, 110, 1000, 0.01)))
    columns = ["trainer", "CPU % of one core", "CPU s per 1,000 steps", "resident MiB"]
    note = "JSONL, TensorBoard and a Prometheus endpoint; steps of 100 floats and 5 phases; one round of 10 s each."
    return Table("Beside a trainer", columns, rows, note)


def _steps(run: otel_rl.Run, first: int, count: int, pause_s: float) -> int:
    values = batches()
    for number in range(first, first + count):
        record_step(run, number, next(values))
        time.sleep(pause_s)
    return count


def _watch(name: str, agent: psutil.Process, work: Callable[[], int | None]) -> list[Cell]:
    before, began = agent.cpu_times(), time.perf_counter()
    steps = work()
    after, wall_s = agent.cpu_times(), time.perf_counter() - began
    cpu_s = after.user + after.system - before.user - before.system
    return [name, 100 * cpu_s / wall_s, 1000 * cpu_s / steps if steps else None, agent.memory_info().rss / 2**20]

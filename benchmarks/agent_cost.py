"""The cost of the agent for the machine: CPU seconds, memory, and the time to deliver a backlog."""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import psutil

import otel_rl
from benchmarks.peers import batches
from benchmarks.recording import directory, record_step, recording
from benchmarks.tables import Cell, Table
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_BACKLOG, _ROUNDS, _WATCHED_S = 10_000, 3, 5.0
_PAUSES_S = (0.0, 1.0, 0.1, 0.01)
_EXPORTERS: dict[str, tuple[str, ...]] = {
    "jsonl and tensorboard": ("jsonl", "tensorboard"),
    "jsonl": ("jsonl",),
    "tensorboard": ("tensorboard",),
    "no exporter": (),
}


class Usage(NamedTuple):
    """The resources that an agent used."""

    cpu_s: float
    wall_s: float


class _Watched(NamedTuple):
    cpu_s: float
    wall_s: float
    steps: int


def measure() -> list[Table]:
    """Return the cost of a backlog of steps, and of an agent that works next to a trainer."""
    return [_backlogs(), _beside_a_trainer()]


def _backlogs() -> Table:
    found: dict[str, list[Usage]] = {name: [] for name in _EXPORTERS}
    for _ in range(_ROUNDS):
        for name, exporters in _EXPORTERS.items():
            empty, full = drain(exporters, 1, _steps_and_phases), drain(exporters, 1 + _BACKLOG, _steps_and_phases)
            found[name].append(Usage(full.cpu_s - empty.cpu_s, full.wall_s - empty.wall_s))
    rows: list[list[Cell]] = []
    for name, usages in found.items():
        cpu_s = statistics.median(usage.cpu_s for usage in usages)
        rate = statistics.median(_BACKLOG / usage.wall_s for usage in usages)
        rows.append([name, 1000 * cpu_s / _BACKLOG, rate])
    columns = ["exporters", "CPU s per 1,000 steps", "steps per second"]
    note = (
        f"{_BACKLOG:,} steps of 100 floats and 5 phases, medians of {_ROUNDS} rounds, "
        "without the agent's start and end (the run of one step is subtracted)."
    )
    return Table("Working off a backlog", columns, rows, note)


def _steps_and_phases(run: otel_rl.Run, steps: int) -> None:
    values = batches()
    for number in range(steps):
        record_step(run, number, next(values))


def drain(
    exporters: tuple[str, ...],
    steps: int,
    record: Callable[[otel_rl.Run, int], None],
    look: Callable[[Path], object] = lambda _: None,
    *,
    content: bool = False,
) -> Usage:
    """Record so many steps without an agent, then let one work until all is delivered; return what it used.

    `look` gets the run directory before it is removed.
    """
    with directory() as place:
        run = otel_rl.init(dir=place, exporters=exporters, agent="off", quiet=True, content=content)
        record(run, steps)
        run.finish()
        environment = os.environ | {"OTEL_METRICS_EXPORTER": "none", "WANDB_MODE": "offline"}
        before, began = children_cpu_s(), time.perf_counter()
        with (run.dir / "agent.log").open("wb") as log:
            command = [sys.executable, "-m", "otel_rl.recorder.agent", *map(str, directories.at(run.dir))]
            subprocess.run(command, env=environment, stderr=log, check=True)
        usage = Usage(children_cpu_s() - before, time.perf_counter() - began)
        look(run.dir)
        return usage


def children_cpu_s() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _beside_a_trainer() -> Table:
    found: dict[float, list[_Watched]] = {pause_s: [] for pause_s in _PAUSES_S}
    with recording(exporters=["jsonl", "tensorboard"], metrics="prometheus") as run:
        agent = psutil.Process(agent_start.read_status(directories.at(run.dir)).pid)
        numbers = itertools.count()
        _record(run, numbers, 0.01, 1.0)  # the first row makes the agent import and open what it needs
        for _ in range(_ROUNDS):
            for pause_s in _PAUSES_S:
                found[pause_s].append(_watch(agent, partial(_record, run, numbers, pause_s, _WATCHED_S)))
        resident = agent.memory_info().rss / 2**20
    rows: list[list[Cell]] = []
    for pause_s, watched in found.items():
        cpu_s, wall_s, steps = (sum(column) for column in zip(*watched, strict=True))
        name = f"steps per second: {1 / pause_s:.0f}" if pause_s else "nothing recorded"
        rows.append([name, 100 * cpu_s / wall_s, 1000 * cpu_s / steps if steps else None])
    columns = ["trainer", "CPU % of one core", "CPU s per 1,000 steps"]
    note = (
        f"JSONL, TensorBoard and a Prometheus endpoint; {_ROUNDS} rounds of {_WATCHED_S:.0f} s each. "
        f"The agent had {resident:.0f} MiB resident at the end."
    )
    return Table("Beside a trainer", columns, rows, note)


def _record(run: otel_rl.Run, numbers: Iterator[int], pause_s: float, within_s: float) -> int:
    """Record a step after each pause, or nothing if there is none; return how many steps that made."""
    values, ends, steps = batches(), time.monotonic() + within_s, 0
    while pause_s and time.monotonic() < ends:
        record_step(run, next(numbers), next(values))
        time.sleep(pause_s)
        steps += 1
    time.sleep(max(0.0, ends - time.monotonic()))
    return steps


def _watch(agent: psutil.Process, work: Callable[[], int]) -> _Watched:
    before, began = agent.cpu_times(), time.perf_counter()
    steps = work()
    after, wall_s = agent.cpu_times(), time.perf_counter() - began
    return _Watched(after.user + after.system - before.user - before.system, wall_s, steps)

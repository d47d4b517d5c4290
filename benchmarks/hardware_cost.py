"""The cost for the agent of measuring the machine."""

from __future__ import annotations

import os
import time

from benchmarks.measuring import TIMER, Contestant, cost, interleave
from benchmarks.tables import Cell, Table
from otel_rl.recorder.agent.hardware import cgroup, host, processes
from otel_rl.recorder.agent.hardware.processes import TrainerProcess


def measure() -> list[Table]:
    """Return the cost of one measurement of the host, of a trainer's processes, and of the cgroup."""
    trainer = TrainerProcess(os.getppid(), 0, "", None, time.time_ns())
    sources = [host.Host(), processes.Processes(lambda: [trainer], time.time_ns), cgroup.find()]
    contestants = [Contestant(source.name, lambda source=source: list(source.read())) for source in sources if source]
    found = interleave([*contestants, TIMER], rounds=7, calls=50)
    rows: list[list[Cell]] = [[name, *cost(one), cost(one).p50 / 1e6 / 10 * 100] for name, one in found.items()]
    note = f"{len(os.listdir('/proc'))} entries in /proc. GPUs are asked in threads that wait for the driver."  # noqa: PTH208
    return [Table("One measurement", ["of", "p50 µs", "p99 µs", "worst µs", "% of a core, every 10 s"], rows, note)]

"""The cost of the memory snapshot at both ends of a phase, compared with other ways to get it."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.measuring import TIMER, Contestant, compared, interleave
from otel_rl.recorder.devices.host_memory import MemoryReader, parse_snapshot

if TYPE_CHECKING:
    from benchmarks.tables import Table

_OURS = "otel_rl MemoryReader.snapshot"


def measure() -> list[Table]:
    """Return the cost of a snapshot, of its system call, and of what else there is."""
    reader, process, path = MemoryReader(), psutil.Process(), Path("/proc/self/statm")
    fd = os.open(path, os.O_RDONLY)
    raw = reader.snapshot(0)
    contestants = [
        Contestant(_OURS, lambda: reader.snapshot(0)),
        Contestant("MemoryReader.recent, still recent", lambda: reader.recent(0)),
        Contestant("os.pread of /proc/self/statm alone", lambda: os.pread(fd, 128, 0)),
        Contestant("parse_snapshot (done by the agent)", lambda: parse_snapshot(raw, 4096)),
        Contestant("open, read, close, parse", lambda: [int(field) for field in path.read_bytes().split()]),
        Contestant("resource.getrusage (peak only)", lambda: resource.getrusage(resource.RUSAGE_SELF)),
        Contestant("psutil memory_info", process.memory_info),
        Contestant("time.time_ns", time.time_ns),
        TIMER,
    ]
    found = interleave(contestants, rounds=11, calls=2000)
    os.close(fd)
    reader.close()
    return [compared("One memory snapshot", found, _OURS, "A phase takes one or two of these.", short="snapshot")]

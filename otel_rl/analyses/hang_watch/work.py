"""The work of a process and its children so far: CPU time, bytes, and whether a signal has stopped it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from otel_rl.recorder.agent.hardware.processes import process_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.hardware.recorder_processes import RecorderProcesses

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
_MOST_THREADS = 512
"""Threads whose demand is read: each takes about 10 µs."""
_NOTHING: dict[int, float] = {}


class Work(NamedTuple):
    """The work of a process and its children so far."""

    cpu: float = 0.0  # seconds of CPU time; NaN if unknown, as for a process of another machine
    moved: int = 0  # bytes that were read and written
    gpu: float = 0.0  # share of the time in which its GPUs are busy now
    is_stopped: bool = False  # a signal or a debugger has stopped it
    demands: Mapping[int, float] = _NOTHING  # seconds in which each thread ran or waited for a core, by its id
    given: float = 1.0  # share of the cores that a thread wants which the machine can give it now


def work_of(pid: int, started_unix_nano: int, recorder: RecorderProcesses) -> Work | None:
    """Return the work of a process with its descendants, without the recorder's; `None` if it is not here."""
    root = process_of(pid, started_unix_nano)
    if root is None:
        return None
    cpu, moved, is_stopped = 0.0, 0, False
    demands: dict[int, float] = {}
    with contextlib.suppress(psutil.Error):
        is_stopped = root.status() in _STOPPED
        for one in [root, *recorder.descendants(root)]:
            with contextlib.suppress(psutil.Error):  # it may end at any moment
                times = one.cpu_times()
                cpu += times.user + times.system
                moved += _moved(one)
            if len(demands) < _MOST_THREADS:
                demands |= _demands(one.pid)
    return Work(cpu, moved, is_stopped=is_stopped, demands=demands, given=_given())


def _moved(process: psutil.Process) -> int:
    """Return the bytes that a process read and wrote, files and pipes; 0 where the system does not count them."""
    try:
        io = process.io_counters()
    except (AttributeError, psutil.Error):  # macOS has none; another user's are hidden
        return 0
    return int(getattr(io, "read_chars", io.read_bytes) + getattr(io, "write_chars", io.write_bytes))


def _demands(pid: int) -> dict[int, float]:
    """Return the seconds in which each thread of a process ran or waited for a core; none where nothing counts them."""
    found: dict[int, float] = {}
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            ran, waited, *_ = (thread / "schedstat").read_text().split()
            found[int(thread.name)] = (int(ran) + int(waited)) / 1e9
    return found


def _given() -> float:
    """Return the share of a core that each thread gets which wants one, by the load of the last minute."""
    try:
        return min(1.0, (os.cpu_count() or 1) / max(os.getloadavg()[0], 1e-9))
    except OSError:
        return 1.0

"""The work of a process and its children so far: CPU time, bytes, and whether a signal has stopped it."""

from __future__ import annotations

import contextlib
import os

import psutil

from otel_rl.agent.hardware.measurement import Work
from otel_rl.agent.hardware.processes import process_of

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def work_of(pid: int, started_unix_nano: int) -> Work | None:
    """Return the work of a process with its descendants, without the agent; `None` if it is not here."""
    root = process_of(pid, started_unix_nano)
    if root is None:
        return None
    cpu, moved, is_stopped = 0.0, 0, False
    with contextlib.suppress(psutil.Error):
        is_stopped = root.status() in _STOPPED
        for one in [root, *root.children(recursive=True)]:
            if one.pid in (os.getpid(), os.getppid()):
                continue
            with contextlib.suppress(psutil.Error):  # it may end at any moment
                times = one.cpu_times()
                cpu += times.user + times.system
                moved += _moved(one)
    return Work(cpu, moved, is_stopped=is_stopped)


def _moved(process: psutil.Process) -> int:
    """Return the bytes that a process read and wrote, files and pipes; 0 where the system does not count them."""
    try:
        found = process.io_counters()
    except (AttributeError, psutil.Error):  # macOS has none; another user's are hidden
        return 0
    return int(getattr(found, "read_chars", found.read_bytes) + getattr(found, "write_chars", found.write_bytes))

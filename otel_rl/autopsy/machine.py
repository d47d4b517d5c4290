"""The machine around the processes: file systems, memory, and GPUs, which may hang, so each has a time limit."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from otel_rl import semconv
from otel_rl.autopsy.evidence import DiskSeen, GpuSeen
from otel_rl.recorder.agent.hardware import cgroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
_WITHIN_S = 2.0
_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
"""Places of NVIDIA's driver; the last one is that of WSL."""


def within(seconds: float, look: Callable[[], T]) -> T | None:
    """Return what a look found; `None` if it takes too long: a dead file server or driver does not respond."""
    results: list[T] = []
    started(lambda: results.append(look())).join(seconds)
    return results[0] if results else None


def started(look: Callable[[], object]) -> threading.Thread:
    """Return a thread that looks; the end of the process does not wait for it."""
    # statvfs on a dead file server and NVML on a dead driver wait in the kernel (state D), where no signal ends them.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


def disks_of(paths: Iterable[str]) -> tuple[tuple[DiskSeen, ...], tuple[str, ...]]:
    """Return the file systems of paths, and the paths whose file system does not respond."""
    disks: dict[int, DiskSeen] = {}
    silent = []
    for path in dict.fromkeys(path for path in paths if path):
        seen = within(_WITHIN_S, lambda path=path: _disk(path))  # type: ignore[misc]
        if seen is None:
            silent.append(path)
        elif seen[1] is not None:
            disks.setdefault(seen[0], seen[1])
    return tuple(disks.values()), tuple(silent)


def _disk(path: str) -> tuple[int, DiskSeen | None]:
    with suppress(OSError):
        stat = os.statvfs(path)
        device = os.stat(path).st_dev  # noqa: PTH116 - of any text
        return device, DiskSeen(path, stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize, stat.f_favail)
    return 0, None


def memory_free() -> float | None:
    """Return the share of the memory that is available; `None` if it is unknown."""
    with suppress(OSError, ValueError, KeyError, ZeroDivisionError):
        lines = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        sizes = {name: int(value.split()[0]) for name, value in lines}
        return sizes["MemAvailable"] / sizes["MemTotal"]
    return None


def oom_kills() -> int:
    """Return how many processes of this cgroup the kernel has killed for lack of memory."""
    group = cgroup.find()
    points = [] if group is None else group.read()
    return sum(int(point.value) for point in points if point.metric == semconv.METRIC_CONTAINER_MEMORY_OOM_KILLS)


def devices() -> tuple[GpuSeen, ...] | None:
    """Return the GPUs; none without a driver, `None` if the driver does not respond."""
    if not any(Path(place).exists() for place in _DRIVERS):
        return ()  # under load, the look for a driver that is not there can take too long, too
    with suppress(Exception):  # the driver is not waited for while it is imported
        import pynvml  # noqa: F401
    return within(2 * _WITHIN_S, _devices)


def _devices() -> tuple[GpuSeen, ...]:
    with suppress(Exception):  # no driver, or one that is broken
        import pynvml

        pynvml.nvmlInit()
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            used = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            gpus.append(GpuSeen(name=f"GPU {index}", utilization=used, memory=memory.used / memory.total))
        return tuple(gpus)
    return ()

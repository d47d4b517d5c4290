"""CPU, memory, swap, disks and network of the host, by psutil."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from otel_rl import semconv
from otel_rl.analysis import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

_USED = ((semconv.SYSTEM_MEMORY_STATE, "used"),)
_SWAPPED = ((semconv.SYSTEM_PAGING_STATE, "used"),)


class Host:
    """The host that the agent runs on; CPU time counts from the previous measurement."""

    name = "host"

    def __init__(self) -> None:
        self._busy: tuple[float, float] | None = None

    def read(self) -> Iterator[Point]:
        """Measure."""
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        yield Point(semconv.METRIC_SYSTEM_MEMORY_LIMIT, memory.total)
        yield Point(semconv.METRIC_SYSTEM_MEMORY_USAGE, memory.total - memory.available, _USED)
        yield Point(semconv.METRIC_SYSTEM_PAGING_USAGE, swap.used, _SWAPPED)
        if swap.total:
            yield Point(semconv.METRIC_SYSTEM_PAGING_UTILIZATION, swap.used / swap.total, _SWAPPED)
        yield Point(semconv.METRIC_HOST_LOAD_AVERAGE, psutil.getloadavg()[0])
        yield from self._cpu()
        disk = psutil.disk_io_counters()
        if disk is not None:
            yield Point(semconv.METRIC_SYSTEM_DISK_IO, disk.read_bytes, ((semconv.DISK_IO_DIRECTION, "read"),))
            yield Point(semconv.METRIC_SYSTEM_DISK_IO, disk.write_bytes, ((semconv.DISK_IO_DIRECTION, "write"),))
        network = [counters for name, counters in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        received, sent = sum(nic.bytes_recv for nic in network), sum(nic.bytes_sent for nic in network)
        yield Point(semconv.METRIC_SYSTEM_NETWORK_IO, received, ((semconv.NETWORK_IO_DIRECTION, "receive"),))
        yield Point(semconv.METRIC_SYSTEM_NETWORK_IO, sent, ((semconv.NETWORK_IO_DIRECTION, "transmit"),))

    def _cpu(self) -> Iterator[Point]:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # these are in user
        if self._busy is not None and total > self._busy[1]:
            busy = (total - idle - self._busy[0]) / (total - self._busy[1])
            yield Point(semconv.METRIC_SYSTEM_CPU_UTILIZATION, min(1.0, max(0.0, busy)))
        self._busy = (total - idle, total)

"""The last measurements of the GPUs and the host of a machine, for `now.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.recorder.archive.now import DeviceNow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.analysis import Point

_OF_GPU = {
    semconv.METRIC_HW_GPU_UTILIZATION: "utilization",
    semconv.METRIC_HW_GPU_MEMORY_USAGE: "memory",
    semconv.METRIC_HW_GPU_MEMORY_LIMIT: "memory_limit",
    semconv.METRIC_HW_POWER: "watts",
    semconv.METRIC_HW_TEMPERATURE: "celsius",
}
_OF_HOST = {
    semconv.METRIC_SYSTEM_CPU_UTILIZATION: "utilization",
    semconv.METRIC_SYSTEM_MEMORY_USAGE: "memory",
    semconv.METRIC_SYSTEM_MEMORY_LIMIT: "memory_limit",
}


class Gauges:
    """Keeps the last value of each measurement; instances of MIG are not shown.

    Attributes:
        utilization: The share of the time in which each GPU is busy, by its UUID.
    """

    def __init__(self, host: str) -> None:
        self._host = DeviceNow(name=host)
        self._gpus: dict[int, DeviceNow] = {}
        self._has_host = False
        self.utilization: dict[str, float] = {}

    def measured(self, points: Iterable[Point]) -> None:
        """Take measurements."""
        for point in points:
            if (field := _OF_HOST.get(point.metric)) is not None:
                self._host = replace(self._host, **{field: float(point.value)})
                self._has_host = True
            elif (field := _OF_GPU.get(point.metric)) is not None:
                attributes = dict(point.attributes)
                if field == "utilization":
                    self.utilization[str(attributes.get(semconv.HW_ID, ""))] = float(point.value)
                index = attributes.get(semconv.GPU_INDEX)
                if isinstance(index, int) and semconv.HW_PARENT not in attributes:
                    gpu = self._gpus.get(index) or DeviceNow(name=f"GPU {index}")
                    self._gpus[index] = replace(gpu, **{field: float(point.value)})

    def now(self) -> tuple[DeviceNow, ...]:
        """Return the GPUs in their order, then the host if it is measured."""
        return (*(self._gpus[index] for index in sorted(self._gpus)), *((self._host,) if self._has_host else ()))

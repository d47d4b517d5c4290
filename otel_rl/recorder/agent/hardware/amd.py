"""AMD's GPUs, by amdsmi. Not run on such a device so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl import semconv
from otel_rl.analysis import Attributes, Point

if TYPE_CHECKING:
    from collections.abc import Iterator


def devices() -> list[AmdGpu]:
    """Return the GPUs; none where the library or the driver is absent."""
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        return [AmdGpu(amdsmi, handle, n) for n, handle in enumerate(amdsmi.amdsmi_get_processor_handles())]
    except Exception:  # without a driver its import fails in ways of its own
        return []


class AmdGpu:
    """One GPU, by the initialized module amdsmi, the library's handle, and the index on this host."""

    def __init__(self, amdsmi: Any, handle: Any, index: int) -> None:
        self._amdsmi, self._handle = amdsmi, handle
        uuid = f"GPU-{amdsmi.amdsmi_get_gpu_device_uuid(handle)}"
        self.name = f"amd/{uuid}"
        self._who: Attributes = ((semconv.HW_ID, uuid), (semconv.GPU_INDEX, index))

    def read(self) -> Iterator[Point]:
        """Measure."""
        gpu: Attributes = (*self._who, (semconv.HW_TYPE, "gpu"))
        activity = self._amdsmi.amdsmi_get_gpu_activity(self._handle)
        yield Point(semconv.METRIC_HW_GPU_UTILIZATION, activity["gfx_activity"] / 100, self._who)
        memory = self._amdsmi.amdsmi_get_gpu_vram_usage(self._handle)  # in MiB
        yield Point(semconv.METRIC_HW_GPU_MEMORY_USAGE, memory["vram_used"] * 2**20, self._who)
        yield Point(semconv.METRIC_HW_GPU_MEMORY_LIMIT, memory["vram_total"] * 2**20, self._who)
        yield Point(semconv.METRIC_HW_GPU_MEMORY_UTILIZATION, memory["vram_used"] / memory["vram_total"], self._who)
        power = self._amdsmi.amdsmi_get_power_info(self._handle)["average_socket_power"]
        if isinstance(power, (int, float)):  # "N/A" where the device does not report it
            yield Point(semconv.METRIC_HW_POWER, power, gpu)
        kind, which = self._amdsmi.AmdSmiTemperatureType.HOTSPOT, self._amdsmi.AmdSmiTemperatureMetric.CURRENT
        celsius = self._amdsmi.amdsmi_get_temp_metric(self._handle, kind, which)
        yield Point(semconv.METRIC_HW_TEMPERATURE, celsius, gpu)

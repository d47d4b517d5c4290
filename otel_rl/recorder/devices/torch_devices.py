"""torch's CUDA and ROCm devices, after the trainer has initialized them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.recorder.devices.clock import DeviceClock
from otel_rl.recorder.devices.values import DeviceValues
from otel_rl.recorder.journal.records import DeviceMemory

if TYPE_CHECKING:
    from otel_rl.recorder.devices.clock import DeviceEvent
    from otel_rl.recorder.settings.settings import Memory


class TorchDevices:
    """torch's information about the devices that this process uses; CUDA is initialized in the module `torch`."""

    def __init__(self, torch: Any, settings: Memory) -> None:
        self._torch = torch
        self._cuda = torch.cuda
        self._resets_peaks = settings.peaks == "reset"
        self._indices: list[int] = []
        self.keeps_history = settings.history > 0
        if self.keeps_history:
            self._cuda.memory._record_memory_history(max_entries=settings.history, stacks="python")
        self.clock = DeviceClock(self._timing_event, self.is_capturing)
        self.values = DeviceValues(torch, self._mark, self.is_capturing, self._stream)

    def describe(self, index: int) -> tuple[str, str, int]:
        """Return UUID (in NVML's spelling; empty if torch does not expose it), name and memory in bytes of a device."""
        known = self._cuda.get_device_properties(index)
        uuid = str(getattr(known, "uuid", ""))
        return f"GPU-{uuid}" if uuid else "", str(known.name), int(known.total_memory)

    def find(self) -> list[int]:
        """Return the new devices: those on which this process has memory, and the current one."""
        current = self._cuda.current_device()
        fresh = [
            index
            for index in range(self._cuda.device_count())
            if index not in self._indices and (index == current or self._has_memory(index))
        ]
        self._indices = sorted([*self._indices, *fresh])
        return fresh

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        """Return the allocator's state of each known device; `used` also asks the driver what all processes use."""
        return [self._memory(index, used=used) for index in self._indices]

    def begin_peak(self) -> None:
        """Reset the peaks, if the settings say so."""
        if self._resets_peaks:
            for index in self._indices:
                self._cuda.reset_peak_memory_stats(index)

    def is_capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        return bool(self._cuda.is_current_stream_capturing())

    def summary(self, index: int) -> str:
        """Return the allocator's own summary of a device."""
        return str(self._cuda.memory_summary(index, abbreviated=True))

    def dump_history(self, path: str) -> None:
        """Write the allocator's history in the format of pytorch.org/memory_viz."""
        self._cuda.memory._dump_snapshot(path)

    def _memory(self, index: int, *, used: bool) -> DeviceMemory:
        stats = self._cuda.memory_stats_as_nested_dict(index)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        free_and_total = self._cuda.mem_get_info(index) if used else None
        return DeviceMemory(
            index,
            allocated["current"],
            reserved["current"],
            allocated["peak"],
            reserved["peak"],
            stats["inactive_split_bytes"]["all"]["current"],
            stats["num_alloc_retries"],
            stats["num_ooms"],
            -1 if free_and_total is None else free_and_total[1] - free_and_total[0],
        )

    def _has_memory(self, index: int) -> bool:
        stats = self._cuda.memory_stats_as_nested_dict(index)
        return bool(stats) and stats["reserved_bytes"]["all"]["peak"] > 0

    def _timing_event(self) -> DeviceEvent:
        event: DeviceEvent = self._cuda.Event(enable_timing=True)
        return event

    def _mark(self, device: Any) -> DeviceEvent:
        event: DeviceEvent = self._cuda.Event()
        event.record(self._cuda.current_stream(device))
        return event

    def _stream(self, device: Any) -> int:
        return int(self._cuda.current_stream(device).cuda_stream)

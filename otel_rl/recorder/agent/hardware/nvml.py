"""NVIDIA's GPUs and their MIG devices, by NVML.

A query that a device does not support is tried once. Processes are never listed: the driver holds a lock for
milliseconds meanwhile, and kernels wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl import semconv
from otel_rl.analysis import Attributes, Point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.recorder.agent.hardware.processes import TrainerProcess

_GPU: Attributes = ((semconv.HW_TYPE, "gpu"),)


def _errors(kind: str) -> Attributes:
    return ((semconv.ERROR_TYPE, kind), *_GPU)


_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""Bits of nvml.h's clocks event reasons; idle GPUs, and clocks set by the owner, do not count as throttled."""
_Queries = dict[tuple[str, ...], Callable[[Any], list[tuple[str, float, Attributes]]]]
_QUERIES: _Queries = {
    ("nvmlDeviceGetMemoryInfo",): lambda memory: [
        (semconv.METRIC_HW_GPU_MEMORY_USAGE, memory.used, ()),
        (semconv.METRIC_HW_GPU_MEMORY_LIMIT, memory.total, ()),
        (semconv.METRIC_HW_GPU_MEMORY_UTILIZATION, memory.used / memory.total, ()),
    ],
    ("nvmlDeviceGetUtilizationRates",): lambda rates: [(semconv.METRIC_HW_GPU_UTILIZATION, rates.gpu / 100, ())],
    ("nvmlDeviceGetPowerUsage",): lambda milliwatts: [(semconv.METRIC_HW_POWER, milliwatts / 1e3, _GPU)],
    ("nvmlDeviceGetTotalEnergyConsumption",): lambda millijoules: [(semconv.METRIC_HW_ENERGY, millijoules / 1e3, _GPU)],
    ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"): lambda celsius: [
        (semconv.METRIC_HW_TEMPERATURE, celsius, _GPU)
    ],
    ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"): lambda mhz: [
        (semconv.METRIC_GPU_CLOCK_FREQUENCY, mhz * 1e6, ((semconv.GPU_CLOCK, "sm"),))
    ],
    ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"): lambda mhz: [
        (semconv.METRIC_GPU_CLOCK_FREQUENCY, mhz * 1e6, ((semconv.GPU_CLOCK, "memory"),))
    ],
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): lambda bits: [
        (semconv.METRIC_GPU_THROTTLE, float(bool(bits & bit)), ((semconv.GPU_THROTTLE_REASON, reason),))
        for bit, reason in _REASONS.items()
    ],
    ("nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"): lambda count: [
        (semconv.METRIC_HW_ERRORS, count, _errors("corrected"))
    ],
    ("nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"): lambda count: [
        (semconv.METRIC_HW_ERRORS, count, _errors("uncorrected"))
    ],
}
"""Functions of NVML, with the constants that they are called with, and the points that follow from each answer."""
_IO_QUERIES: _Queries = {
    ("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES"): lambda kilobytes: [
        (semconv.METRIC_GPU_IO_RATE, kilobytes * 1e3, ((semconv.NETWORK_IO_DIRECTION, "receive"),))
    ],
    ("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES"): lambda kilobytes: [
        (semconv.METRIC_GPU_IO_RATE, kilobytes * 1e3, ((semconv.NETWORK_IO_DIRECTION, "transmit"),))
    ],
}


class NvidiaGpu:
    """One GPU, or one MIG device of it, by the initialized module pynvml and NVML's handle of the device.

    Args:
        index: NVML's index of the GPU.
        parent: UUID of the GPU that a MIG device is a part of; empty for a GPU.
        is_visible: Returns whether the trainer can see the device; other devices are not measured.
    """

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        index: int,
        parent: str = "",
        *,
        queries: _Queries,
        is_visible: Callable[[NvidiaGpu], bool],
    ) -> None:
        self._nvml, self._handle = nvml, handle
        self.uuid = str(nvml.nvmlDeviceGetUUID(handle))
        self.parent = parent
        self.name = f"nvml/{self.uuid}"
        self._who: Attributes = (
            (semconv.HW_ID, self.uuid),
            (semconv.GPU_INDEX, index),
            *(((semconv.HW_PARENT, parent),) if parent else ()),
        )
        self._queries = dict(queries)
        self._is_visible = is_visible
        self._xids: dict[int, int] = {}
        self._events: Any = None
        self._listens = bool(parent)  # XIDs are reported for whole GPUs

    def read(self) -> Iterator[Point]:
        """Measure.

        Raises:
            NVMLError: The device does not answer; the points before that are still measured.
        """
        # Asked in each turn: GPUs of other jobs on the machine must not be queried, as their kernels would wait for the
        # driver's lock.
        if not self._is_visible(self):
            return
        if not self._listens:
            self._listens, self._events = True, self._listen()
        lacking = (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound)
        for query, points in list(self._queries.items()):
            function, *constants = (getattr(self._nvml, name) for name in query)
            try:
                answer = function(self._handle, *constants)
            except lacking:
                del self._queries[query]
            else:
                for metric, value, attributes in points(answer):
                    yield Point(metric, value, tuple(sorted((*self._who, *attributes))))
        yield from self._read_xids()

    def _listen(self) -> Any:
        """Subscribe to the driver's XID errors; return `None` where they are not reported."""
        try:
            events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(self._handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        except self._nvml.NVMLError:
            return None
        return events

    def _read_xids(self) -> Iterator[Point]:
        while self._events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError:  # mostly a timeout: there are no more
                break
            self._xids[int(event.eventData)] = self._xids.get(int(event.eventData), 0) + 1
        for xid, count in self._xids.items():
            yield Point(semconv.METRIC_HW_ERRORS, count, tuple(sorted((*self._who, *_errors(f"xid_{xid}")))))


def devices(watched: Callable[[], Sequence[TrainerProcess]], *, io: bool) -> list[NvidiaGpu]:
    """Return the GPUs and MIG devices, each once; none where there is no library.

    Only those that the watched processes can see are measured.

    Raises:
        NVMLError: The driver does not answer.
    """
    try:
        import pynvml
    except ImportError:
        return []
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    gpus: list[NvidiaGpu] = []

    def is_visible(device: NvidiaGpu) -> bool:
        return device in visible(gpus, [process.visible_devices for process in watched()])

    make = partial(NvidiaGpu, nvml, queries=_QUERIES | (_IO_QUERIES if io else {}), is_visible=is_visible)
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = make(handle, index)
        except nvml.NVMLError_GpuIsLost:  # the others are there
            continue
        gpus += [gpu, *(make(part, index, gpu.uuid) for part in _mig_handles(nvml, handle))]
    return gpus


def visible(devices: Sequence[NvidiaGpu], settings: Sequence[str | None]) -> list[NvidiaGpu]:
    """Return the devices that any of the processes can see; all devices if there are none.

    Each process's `CUDA_VISIBLE_DEVICES` has indices, or beginnings of UUIDs. As CUDA does, one that fits no device
    hides those behind it. Where CUDA numbers the fastest device first, indices are only right if
    `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set, or all GPUs are alike.
    """
    gpus = [device for device in devices if device.uuid.startswith("GPU")]
    chosen: set[str] = set()
    for text in settings:
        if text is None:
            return list(devices)
        for entry in filter(None, (part.strip() for part in text.split(","))):
            fitting = _fitting(entry, devices, gpus)
            if not fitting:
                break
            chosen |= fitting
    return [device for device in devices if device.uuid in chosen] or list(devices)


def _fitting(entry: str, devices: Sequence[NvidiaGpu], gpus: Sequence[NvidiaGpu]) -> set[str]:
    """Return the UUID of the one device that an entry means; a GPU's brings its MIG devices along."""
    if entry.isdecimal():
        meant = [gpus[int(entry)]] if int(entry) < len(gpus) else []
    else:
        meant = [device for device in devices if device.uuid.startswith(entry)]
    if len(meant) != 1:
        return set()
    return {meant[0].uuid} | {device.uuid for device in devices if device.parent == meant[0].uuid}


def _mig_handles(nvml: Any, gpu: Any) -> Iterator[Any]:
    try:
        mode, _ = nvml.nvmlDeviceGetMigMode(gpu)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if mode else 0
    except nvml.NVMLError:
        return
    for n in range(count):
        with suppress(nvml.NVMLError):  # a place that no device is made in
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, n)

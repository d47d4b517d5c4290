"""JAX's devices, such as TPUs, after the trainer has initialized them. Not yet tested on a TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.recorder.journal.records import DeviceMemory

if TYPE_CHECKING:
    from collections.abc import Mapping


class JaxDevices:
    """JAX's information about the memory of this process's devices, those that report memory statistics."""

    def __init__(self, devices: list[Any]) -> None:
        self._devices = dict(enumerate(devices))
        self._fresh = list(self._devices)

    def describe(self, index: int) -> tuple[str, str, int]:
        """Return an empty UUID, since JAX does not expose it, the kind of a device, and its memory in bytes."""
        device = self._devices[index]
        return "", str(device.device_kind), int((device.memory_stats() or {}).get("bytes_limit", 0))

    def find(self) -> list[int]:
        """Return all devices at the first call, then none."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        """Return the memory in use; if JAX reports no pool, allocated and reserved memory are equal."""
        return [_memory(index, device.memory_stats() or {}) for index, device in self._devices.items()]

    def begin_peak(self) -> None:
        """Do nothing: JAX's peaks cannot be reset."""


def _memory(index: int, stats: dict[str, int]) -> DeviceMemory:
    in_use = stats.get("bytes_in_use", 0)
    peak = stats.get("peak_bytes_in_use", in_use)
    return DeviceMemory(index, in_use, stats.get("pool_bytes", in_use), peak, stats.get("peak_pool_bytes", peak))


def initialized(modules: Mapping[str, Any]) -> JaxDevices | None:
    """Return the devices if the trainer has initialized a backend; asking JAX earlier would initialize one.

    Return `None` also if no device reports memory statistics, as with CPUs.
    """
    bridge = modules.get("jax._src.xla_bridge")
    if bridge is None or "jax" not in modules or not getattr(bridge, "backends_are_initialized", bool)():
        return None
    devices = [device for device in modules["jax"].local_devices() if device.memory_stats()]
    return JaxDevices(devices) if devices else None

"""JAX's devices — TPUs among them — once the trainer has initialised them. Not run on such a device so far."""

from __future__ import annotations

from typing import Any

from otel_rl.journal.records import DeviceMemory


class JaxDevices:
    """What JAX knows of the memory of this process's devices.

    Args:
        devices: Those that tell of their memory.
    """

    def __init__(self, devices: list[Any]) -> None:
        self._devices = dict(enumerate(devices))
        self._told = False

    def describe(self, index: int) -> tuple[str, str, int]:
        """Return an empty UUID, which JAX does not tell, the kind of a device, and its bytes."""
        device = self._devices[index]
        return "", str(device.device_kind), int((device.memory_stats() or {}).get("bytes_limit", 0))

    def find(self) -> list[int]:
        """Return all of them, the first time."""
        fresh = [] if self._told else list(self._devices)
        self._told = True
        return fresh

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        """Return what is in use; JAX tells no difference between allocated and reserved where it tells no pool."""
        return [_memory(index, device.memory_stats() or {}) for index, device in self._devices.items()]

    def begin_peak(self) -> None:
        """Do nothing: JAX's peaks cannot be reset."""


def _memory(index: int, stats: dict[str, int]) -> DeviceMemory:
    in_use = stats.get("bytes_in_use", 0)
    peak = stats.get("peak_bytes_in_use", in_use)
    return DeviceMemory(index, in_use, stats.get("pool_bytes", in_use), peak, stats.get("peak_pool_bytes", peak))


def initialised(modules: dict[str, Any]) -> JaxDevices | None:
    """Return the devices, if the trainer has initialised a backend; asking JAX earlier would do it.

    `None` also where no device tells of its memory, such as CPUs.
    """
    bridge = modules.get("jax._src.xla_bridge")
    if bridge is None or "jax" not in modules or not getattr(bridge, "backends_are_initialized", bool)():
        return None
    devices = [device for device in modules["jax"].local_devices() if device.memory_stats()]
    return JaxDevices(devices) if devices else None

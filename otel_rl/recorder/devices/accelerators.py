"""The accelerators of this process: memory at phase boundaries, device time of phases, and values on devices.

Nothing here imports a framework or initializes a device. If the trainer has not done so, nothing is measured.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from otel_rl.recorder.convert.refused_values import Unconvertible
from otel_rl.recorder.journal.records import DeviceSeen, DeviceTimed, Logged, Observed, OnDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.recorder.devices.clock import DeviceClock, DeviceEvent
    from otel_rl.recorder.devices.sampling import Sampler
    from otel_rl.recorder.devices.values import DeviceValues
    from otel_rl.recorder.journal.records import DeviceMemory, Fingerprint, Record
    from otel_rl.recorder.settings.settings import Memory

_RECENT_NS = 20_000
_LOOK_EVERY_NS = 1_000_000_000


class DeviceFramework(Protocol):
    """The questions that a framework, torch or JAX, must answer."""

    def describe(self, index: int) -> tuple[str, str, int]:
        """Return UUID, name and memory in bytes of a device."""

    def find(self) -> list[int]:
        """Return the indices of new devices."""

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        """Return the memory of each known device."""

    def begin_peak(self) -> None:
        """Reset the peaks, if the settings say so."""


class Devices:
    """The devices of the framework that has initialized one.

    Args:
        write: Appends a record to the journal.
        refuse: Counts a failed measurement, with a reason and a message.
        settings: What is measured.
        modules: The imported modules; none in a forked child, which cannot use the devices of its parent.
    """

    def __init__(
        self,
        write: Callable[[Record], None],
        refuse: Callable[[str, str], None],
        settings: Memory,
        modules: Mapping[str, Any] = sys.modules,
    ) -> None:
        self._write = write
        self._refuse = refuse
        self._settings = settings
        self._modules = modules
        self._last: list[DeviceMemory] = []
        self._last_at = 0
        self._dropped = 0
        self.found: DeviceFramework | None = None  # the framework that has initialized a device
        self.silent_until = 0  # time of the next look for a device, in Unix nanoseconds; until then there is none
        self._clock: DeviceClock | None = None
        self._values: DeviceValues | None = None
        self._sampler: Sampler | None = None

    def asked(self, now: int) -> bool:
        """Return whether there are devices; look for them once a second."""
        return self.found is not None or (now >= self.silent_until and self._look(now))

    def begin_step(self, now: int) -> list[DeviceMemory] | None:
        """Look for new devices; return the memory of all devices, or `None` if there are none."""
        if not self.asked(now):
            return None
        try:
            self._announce()
            if self._clock is not None:
                self._clock.begin_step()
        except Exception as error:
            self._refuse("devices", f"cannot look for devices: {error!r}")
        return self.memory(now)

    def begin(self, now: int, *, used: bool = False) -> list[DeviceMemory] | None:
        """Reset the peaks for a phase, and return the memory at its start; the values may be 20 µs old."""
        if not self.asked(now):
            return None
        recent = self._last if not used and 0 <= now - self._last_at <= _RECENT_NS else self.memory(now, used=used)
        try:
            self.found.begin_peak()  # type: ignore[union-attr] # it was found
        except Exception as error:
            self._refuse("devices", f"cannot reset memory peaks: {error!r}")
        return recent

    def memory(self, now: int, *, used: bool = False) -> list[DeviceMemory] | None:
        """Return the memory now; if `used` is true, include the memory that all processes use."""
        if self.found is None:
            return None
        try:
            self._last, self._last_at = self.found.memory(used=used), now
        except Exception as error:
            self._refuse("devices", f"cannot read device memory: {error!r}")
            return None
        return self._last

    def start_clock(self) -> DeviceEvent | None:
        """Mark the start of a phase on the device."""
        if self._clock is None:
            return None
        try:
            return self._clock.begin()
        except Exception as error:
            self._refuse("device_clock", f"the device's clock: {error!r}")
            return None

    def stop_clock(self, step: int | None, span_id: int, start: DeviceEvent | None) -> bool:
        """Mark the end of a phase; return whether its time will be recorded."""
        if start is None or self._clock is None:
            return False
        try:
            return self._clock.end((step, span_id), start)
        except Exception as error:
            self._refuse("device_clock", f"the device's clock: {error!r}")
            return False

    def copy_values(self, tensors: Mapping[str, Any], step: int, weight: float) -> None:
        """Copy tensors from the device asynchronously; `arrived` records them later."""
        if self.found is None:
            self._look(time.time_ns())
        try:
            if self._values is None:
                raise Unconvertible("unknown device")
            self._values.copy(tensors, step, time.time_ns(), weight)
            # Announced, so that the row of the step waits for the values, which arrive later
            # (recorder/trainer/test_devices.py).
            self._write(OnDevice(step, 1))
        except Exception as error:
            for name in tensors:
                self._refuse("value", f"{name}: {error}")

    def sample_weights(self, fingerprint: Fingerprint, tensors: object) -> None:
        """Sample weights, and record the samples: now, or when they have arrived from a device."""
        self.arrived()
        if self._sampler is None:
            from otel_rl.recorder.devices.sampling import Sampler  # few processes need it

            self._sampler = Sampler(self._refuse)
        copies: list[Any] = []

        def on_device(views: list[tuple[str, Any]]) -> None:
            if self.found is None:
                self._look(time.time_ns())
            if self._values is None:
                raise Unconvertible(f"{views[0][1].device} is an unknown device; pass copies on the CPU")
            copies.extend(self._values.copies(views))

        fingerprint.tensors = self._sampler.sample(tensors, on_device)
        if not fingerprint.tensors:
            self._refuse("weights", "weights: there is no tensor of floats; pass model.named_parameters()")
        elif self._values is not None and copies:
            self._values.sample(fingerprint, copies)
        else:
            self._write(fingerprint)

    def arrived(self) -> None:
        """Record the values and phase times that have arrived since the last call, without waiting."""
        try:
            if self._values is not None and self._values.waiting:
                self._record_values()
            if self._clock is not None:
                for key, seconds, offset in self._clock.arrived():
                    self._write(DeviceTimed(*key, seconds, offset))
                if self._clock.dropped > self._dropped:
                    self._dropped = self._clock.dropped
                    self._refuse("device_clock", "cannot time phases on their device")
        except Exception as error:
            self._refuse("devices", f"cannot record values from devices: {error!r}")

    def wait(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for pending values, at the end of the run."""
        deadline = time.monotonic() + timeout
        self.arrived()
        while self._values is not None and self._values.waiting and time.monotonic() < deadline:
            time.sleep(0.01)
            self.arrived()
        if self._values is not None and self._values.waiting:
            self._refuse("record", f"values on a device have not arrived after {timeout:g} s, and are lost")

    def _record_values(self) -> None:
        for come in self._values.arrived() if self._values is not None else ():
            if come.fingerprint is not None:
                self._write(come.fingerprint)
                continue
            if come.scalars:
                self._write(Logged(come.step, come.time, come.scalars, come.weight))
            if come.samples:
                self._write(Observed(come.step, come.time, come.samples))
            self._write(OnDevice(come.step, -1))

    def _look(self, now: int) -> bool:
        """Return whether a framework has initialized a device; looks once a second, because most processes never do."""
        self.silent_until = now + _LOOK_EVERY_NS
        try:
            self.found = self._torch() or self._jax()
            if self.found is not None:
                self.silent_until = 0
                self._announce()
        except Exception as error:
            self._refuse("devices", f"cannot look for devices: {error!r}")
        return self.found is not None

    def _torch(self) -> DeviceFramework | None:
        torch = self._modules.get("torch")
        # `is_initialized` alone: questions such as that for the current device would initialize CUDA, and take memory
        # in processes that do not use it (recorder/trainer/test_devices.py).
        if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
            return None
        from otel_rl.recorder.devices.torch_devices import TorchDevices  # only if there is a device

        torch_devices = TorchDevices(torch, self._settings)
        self._values = torch_devices.values
        self._clock = torch_devices.clock if self._settings.device_clock else None
        return torch_devices

    def _jax(self) -> DeviceFramework | None:
        if "jax" not in self._modules:
            return None
        from otel_rl.recorder.devices.jax_devices import initialized  # only if JAX is imported

        return initialized(self._modules)

    def _announce(self) -> None:
        for index in self.found.find() if self.found is not None else ():
            self._write(DeviceSeen(time.time_ns(), index, *self.found.describe(index)))  # type: ignore[union-attr]

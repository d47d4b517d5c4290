"""The accelerators of this process: their memory at phase boundaries, their clock, the values that lie on them.

Nothing here imports a framework or initialises a device: where the trainer did not, there is nothing to measure.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from otel_rl.convert.values import Unconvertible
from otel_rl.journal.records import DeviceSeen, DeviceTimed, Logged, Observed, OnDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.devices.clock import DeviceClock, DeviceEvent
    from otel_rl.devices.values import DeviceValues
    from otel_rl.journal.records import DeviceMemory, Record

_RECENT_NS = 20_000
_LOOK_EVERY_NS = 1_000_000_000


class Framework(Protocol):
    """What torch and JAX are asked."""

    def describe(self, index: int) -> tuple[str, str, int]:
        """Return UUID, name and bytes of a device."""

    def find(self) -> list[int]:
        """Return the devices that are new."""

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        """Return the memory of each known device."""

    def begin_peak(self) -> None:
        """Let peaks count anew from here, if that was asked for."""


class Devices:
    """Asks whichever framework has initialised a device.

    Args:
        write: Appends to the journal.
        refuse: Counts what cannot be served.
        clock: Whether phases are timed on the device too.
        reset_peaks: Whether the allocator's peaks are reset where a phase begins.
        history: How many events of the allocator are kept for a report of running out of memory.
        modules: Where imported frameworks are looked up.

    Attributes:
        found: The framework that has initialised a device.
        silent_until: Until when (Unix nanoseconds) there is none for sure, so that nobody needs to ask.
    """

    def __init__(
        self,
        write: Callable[[Record], None],
        refuse: Callable[[str, str], None],
        *,
        clock: bool = True,
        reset_peaks: bool = False,
        history: int = 0,
        modules: dict[str, Any] = sys.modules,
    ) -> None:
        self._write = write
        self._refuse = refuse
        self._use_clock = clock
        self._reset_peaks = reset_peaks
        self._history = history
        self._modules = modules
        self._last: list[DeviceMemory] = []
        self._last_at = 0
        self._dropped = 0
        self.found: Framework | None = None
        self.silent_until = 0
        self._clock: DeviceClock | None = None
        self._values: DeviceValues | None = None

    def asked(self, now: int) -> bool:
        """Tell whether there are devices; looks for them where that is due."""
        return self.found is not None or (now >= self.silent_until and self._look(now))

    def begin_step(self, now: int) -> list[DeviceMemory] | None:
        """Look for devices that are new; return the memory of all, `None` where there are none."""
        if not self.asked(now):
            return None
        try:
            self._announce()
            if self._clock is not None:
                self._clock.begin_step()
        except Exception as error:
            self._refuse("devices", f"the devices could not be looked at: {error!r}")
        return self.memory(now)

    def begin(self, now: int, *, used: bool = False) -> list[DeviceMemory] | None:
        """Return the memory at the start of a phase, from where its peak counts; it may be 20 µs old."""
        if not self.asked(now):
            return None
        recent = self._last if not used and 0 <= now - self._last_at <= _RECENT_NS else self.memory(now, used=used)
        try:
            self.found.begin_peak()  # type: ignore[union-attr] # it was found
        except Exception as error:
            self._refuse("devices", f"peaks could not be reset: {error!r}")
        return recent

    def memory(self, now: int, *, used: bool = False) -> list[DeviceMemory] | None:
        """Return the memory now; with `used`, of other processes too."""
        if self.found is None:
            return None
        try:
            self._last, self._last_at = self.found.memory(used=used), now
        except Exception as error:
            self._refuse("devices", f"the memory of the devices could not be read: {error!r}")
            return None
        return self._last

    def start_clock(self) -> DeviceEvent | None:
        """Mark the beginning of a phase on the device."""
        if self._clock is None:
            return None
        try:
            return self._clock.begin()
        except Exception as error:
            self._refuse("device_clock", f"the device's clock: {error!r}")
            return None

    def stop_clock(self, step: int | None, span_id: int, start: DeviceEvent | None) -> bool:
        """Mark the end of a phase; tell whether its time will be recorded."""
        if start is None or self._clock is None:
            return False
        try:
            return self._clock.end((step, span_id), start)
        except Exception as error:
            self._refuse("device_clock", f"the device's clock: {error!r}")
            return False

    def take_values(self, tensors: Mapping[str, Any], step: int, weight: float) -> None:
        """Record tensors that lie on a device, as soon as they have come from there."""
        if self.found is None:
            self._look(time.time_ns())
        try:
            if self._values is None:
                raise Unconvertible("the device is not known")
            self._values.copy(tensors, step, time.time_ns(), weight)
            self._write(OnDevice(step, 1))
        except Exception as error:
            for name in tensors:
                self._refuse("value", f"{name}: {error}")

    def arrived(self) -> None:
        """Record what has come from the devices since the last call; never waits."""
        try:
            if self._values is not None and self._values.waiting:
                self._record_values()
            if self._clock is not None:
                for key, seconds, offset in self._clock.arrived():
                    self._write(DeviceTimed(*key, seconds, offset))
                if self._clock.dropped > self._dropped:
                    self._dropped = self._clock.dropped
                    self._refuse("device_clock", "phases could not be timed on their device")
        except Exception as error:
            self._refuse("devices", f"what came from the devices could not be recorded: {error!r}")

    def wait(self, timeout: float) -> None:
        """Give values that are on their way some time to arrive; the run is at its end."""
        deadline = time.monotonic() + timeout
        self.arrived()
        while self._values is not None and self._values.waiting and time.monotonic() < deadline:
            time.sleep(0.01)
            self.arrived()

    def _record_values(self) -> None:
        for come in self._values.arrived() if self._values is not None else ():
            if come.scalars:
                self._write(Logged(come.step, come.time, come.scalars, come.weight))
            if come.samples:
                self._write(Observed(come.step, come.time, come.samples))
            self._write(OnDevice(come.step, -1))

    def _look(self, now: int) -> bool:
        """Tell whether a framework has initialised a device by now; asked once a second, since most never do."""
        self.silent_until = now + _LOOK_EVERY_NS
        try:
            self.found = self._torch() or self._jax()
            if self.found is not None:
                self.silent_until = 0
                self._announce()
        except Exception as error:
            self._refuse("devices", f"the devices could not be looked at: {error!r}")
        return self.found is not None

    def _torch(self) -> Framework | None:
        torch = self._modules.get("torch")
        if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
            return None
        from otel_rl.devices.torch_devices import TorchDevices  # where there is a device

        found = TorchDevices(torch, reset_peaks=self._reset_peaks, history=self._history)
        self._values = found.values
        self._clock = found.clock if self._use_clock else None
        return found

    def _jax(self) -> Framework | None:
        if "jax" not in self._modules:
            return None
        from otel_rl.devices.jax_devices import initialised  # where JAX is

        return initialised(self._modules)

    def _announce(self) -> None:
        for index in self.found.find() if self.found is not None else ():
            self._write(DeviceSeen(time.time_ns(), index, *self.found.describe(index)))  # type: ignore[union-attr]

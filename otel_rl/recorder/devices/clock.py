"""Device time of phases, measured with events in the device's queue that are read after the device has passed them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_MOST_PENDING = 4096


class DeviceEvent(Protocol):
    """An event in a device's queue, such as `torch.cuda.Event(enable_timing=True)`."""

    def record(self, stream: Any = None) -> None:
        """Enqueue the event on a stream, by default on the current one."""

    def query(self) -> bool:
        """Return whether the device has passed the event, without waiting."""

    def elapsed_time(self, end: Self) -> float:
        """Return the milliseconds between two events that the device has passed."""


class Measured(NamedTuple):
    """The duration of a phase on the device."""

    key: tuple[int | None, int]  # step and span id of the phase
    seconds: float  # from its first event to its last one
    offset: float  # seconds from the start of the step on the device to the start of the phase; 0 outside of a step


class _PendingTime(NamedTuple):
    key: tuple[int | None, int]
    anchor: DeviceEvent | None
    start: DeviceEvent
    end: DeviceEvent


class DeviceClock:
    """A timer of phases on the device, which never waits for the device.

    The driver returns times as floats with 24 bits of milliseconds, so after several hours the error would exceed 1 ms.
    Therefore, offsets are relative to an event at the start of each step.

    Args:
        new_event: Creates an event.
        is_capturing: Returns whether a graph is being captured, of which an event would become a part.
    """

    def __init__(self, new_event: Callable[[], DeviceEvent], is_capturing: Callable[[], bool]) -> None:
        self._new_event = new_event
        self._is_capturing = is_capturing
        # Used again: a thousand phases need no more events than are pending at a time (recorder/devices/test_clock.py).
        self._pool: list[DeviceEvent] = []
        self._pending: deque[_PendingTime] = deque()
        self._anchor: DeviceEvent | None = None
        self.dropped = 0  # number of untimed phases: too many were pending, or they ended on another device

    def begin_step(self) -> None:
        """Mark the start of a step. The event is not reused, because phases refer to it."""
        if not self._is_capturing():
            self._anchor = self._new_event()
            self._anchor.record()

    def begin(self) -> DeviceEvent | None:
        """Mark the start of a phase; return `None` if it cannot be timed."""
        if self._is_capturing():
            return None
        event = self._pool.pop() if self._pool else self._new_event()
        event.record()
        return event

    def end(self, key: tuple[int | None, int], start: DeviceEvent | None) -> bool:
        """Mark the end of a phase; return whether `arrived` will return its time."""
        if start is None:
            return False
        if self._is_capturing() or len(self._pending) >= _MOST_PENDING:
            self.dropped += 1
            return False
        event = self._pool.pop() if self._pool else self._new_event()
        event.record()
        self._pending.append(_PendingTime(key, None if key[0] is None else self._anchor, start, event))
        return True

    def arrived(self) -> list[Measured]:
        """Return the phases that have ended on the device since the last call, in order."""
        measured: list[Measured] = []
        while self._pending and self._pending[0].end.query():
            try:
                pending = self._pending.popleft()
            except IndexError:  # another thread was faster
                break
            measured.append(self._read(pending))
            self._pool += (pending.start, pending.end)
        return measured

    def _read(self, pending: _PendingTime) -> Measured:
        try:
            seconds = pending.start.elapsed_time(pending.end) / 1e3
            offset = 0.0 if pending.anchor is None else pending.anchor.elapsed_time(pending.start) / 1e3
        except Exception:  # two devices, or an event that was captured in a graph
            self.dropped += 1
            return Measured(pending.key, float("nan"), 0.0)
        return Measured(pending.key, seconds, offset)

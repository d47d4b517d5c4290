"""Measures phases on the device: with events that the device passes, and that are read when it has."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_MOST_PENDING = 4096


class DeviceEvent(Protocol):
    """A mark in a device's queue of work, such as `torch.cuda.Event(enable_timing=True)`."""

    def record(self, stream: Any = None) -> None:
        """Put the mark behind the work that is queued now, on a stream or on the current one."""

    def query(self) -> bool:
        """Tell whether the device has passed it, without waiting."""

    def elapsed_time(self, end: Self) -> float:
        """Return the milliseconds between two marks that were passed."""


class Measured(NamedTuple):
    """How long a phase took on the device.

    Attributes:
        key: What it was begun with.
        seconds: From its first mark to its last.
        offset: Seconds from the mark at the beginning of the step to its first one; 0 without a step.
    """

    key: tuple[int | None, int]
    seconds: float
    offset: float


class _Pending(NamedTuple):
    key: tuple[int | None, int]
    anchor: DeviceEvent | None
    start: DeviceEvent
    end: DeviceEvent


class DeviceClock:
    """Times phases by the device's own clock, and never waits for it.

    A time that the driver gives has 24 bits of milliseconds: after some hours it would be off by more than
    one. So offsets count from a mark that each step sets anew.

    Args:
        new_event: Makes a mark.
        is_capturing: Tells whether a graph is being captured, where a mark would become part of it.

    Attributes:
        dropped: How many phases were not timed: too many were waiting, or their two ends were on two devices.
    """

    def __init__(self, new_event: Callable[[], DeviceEvent], is_capturing: Callable[[], bool]) -> None:
        self._new_event = new_event
        self._is_capturing = is_capturing
        self._pool: list[DeviceEvent] = []
        self._pending: deque[_Pending] = deque()
        self._anchor: DeviceEvent | None = None
        self.dropped = 0

    def begin_step(self) -> None:
        """Mark the beginning of a step; it is no longer in the pool, since phases refer to it."""
        if not self._is_capturing():
            self._anchor = self._new_event()
            self._anchor.record()

    def begin(self) -> DeviceEvent | None:
        """Mark the beginning of a phase; `None` where it cannot be timed."""
        if self._is_capturing():
            return None
        event = self._pool.pop() if self._pool else self._new_event()
        event.record()
        return event

    def end(self, key: tuple[int | None, int], start: DeviceEvent | None) -> bool:
        """Mark the end of a phase; tell whether `arrived` will have its time."""
        if start is None:
            return False
        if self._is_capturing() or len(self._pending) >= _MOST_PENDING:
            self.dropped += 1
            return False
        event = self._pool.pop() if self._pool else self._new_event()
        event.record()
        self._pending.append(_Pending(key, None if key[0] is None else self._anchor, start, event))
        return True

    def arrived(self) -> list[Measured]:
        """Return the phases whose ends the device has passed since the last call, in their order."""
        found: list[Measured] = []
        while self._pending and self._pending[0].end.query():
            try:
                one = self._pending.popleft()
            except IndexError:  # another thread was quicker
                break
            found.append(self._read(one))
            self._pool += (one.start, one.end)
        return found

    def _read(self, one: _Pending) -> Measured:
        try:
            seconds = one.start.elapsed_time(one.end) / 1e3
            offset = 0.0 if one.anchor is None else one.anchor.elapsed_time(one.start) / 1e3
        except Exception:  # two devices, or a mark that was captured after all
            self.dropped += 1
            return Measured(one.key, float("nan"), 0.0)
        return Measured(one.key, seconds, offset)

"""Devices for tests: the protocols of `devices.accelerators` without a GPU, with a clock that tests turn."""

from __future__ import annotations

from typing import Any

from otel_rl.recorder.journal.records import DeviceMemory

GIB = 1 << 30


class Queue:
    """A device that works on demand.

    Attributes:
        now: Its clock, in milliseconds.
        captures: Whether a graph is captured.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.captures = False
        self._marks: list[Mark] = []

    def new_mark(self) -> Mark:
        return Mark(self)

    def mark(self, device: object) -> Mark:
        mark = Mark(self)
        mark.record()
        return mark

    def enqueue(self, mark: Mark) -> None:
        self._marks.append(mark)

    def is_capturing(self) -> bool:
        return self.captures

    def work(self, milliseconds: float, marks: int = 1) -> None:
        """Let time pass, then pass the oldest marks."""
        self.now += milliseconds
        for mark in self._marks[:marks]:
            mark.passed_at = self.now
        del self._marks[:marks]


class Mark:
    """An event in the queue of a device."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.passed_at: float | None = None

    def record(self, stream: Any = None) -> None:
        self.passed_at = None
        self._queue.enqueue(self)

    def query(self) -> bool:
        return self.passed_at is not None

    def elapsed_time(self, end: Mark) -> float:
        assert self.passed_at is not None, "read before the device passed it"
        assert end.passed_at is not None, "read before the device passed it"
        return end.passed_at - self.passed_at


class Allocator:
    """A framework with devices of 80 GiB whose memory the test sets; it writes down what it is asked.

    Args:
        devices: How many devices.
        calls: Where it writes.
    """

    def __init__(self, devices: int = 1, calls: list[str] | None = None) -> None:
        self._new = list(range(devices))
        self._allocated = [0] * devices
        self._peak = [0] * devices
        self.calls = [] if calls is None else calls

    def hold(self, gib: float, device: int = 0) -> None:
        """Have so much allocated."""
        self._allocated[device] = round(gib * GIB)
        self._peak[device] = max(self._peak[device], self._allocated[device])

    def describe(self, index: int) -> tuple[str, str, int]:
        return f"GPU-{index}", "imaginary", 80 * GIB

    def find(self) -> list[int]:
        new, self._new = self._new, []
        return new

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        self.calls.append("snapshot")
        return [
            DeviceMemory(n, held, 2 * held, peak, 2 * peak, used=held + GIB if used else -1)
            for n, (held, peak) in enumerate(zip(self._allocated, self._peak, strict=True))
        ]

    def begin_peak(self) -> None:
        self.calls.append("reset")
        self._peak = list(self._allocated)

"""A device whose answers are ready-made, so that what is measured is our own share."""

from __future__ import annotations

from typing import Any

from otel_rl.recorder.journal.records import DeviceMemory

_MEMORY = [DeviceMemory(0, 20 << 30, 40 << 30, 30 << 30, 40 << 30)]


class ImaginaryDevice:
    """One device of 80 GiB."""

    def describe(self, index: int) -> tuple[str, str, int]:
        """Return UUID, name and bytes."""
        return "GPU-0", "imaginary", 80 << 30

    def find(self) -> list[int]:
        """Return nothing new."""
        return []

    def memory(self, *, used: bool = False) -> list[DeviceMemory]:
        """Return the same each time."""
        return _MEMORY

    def begin_peak(self) -> None:
        """Do nothing."""


class PassedEvent:
    """A mark that is passed as soon as it is recorded."""

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return true."""
        return True

    def elapsed_time(self, end: PassedEvent) -> float:
        """Return a millisecond."""
        return 1.0

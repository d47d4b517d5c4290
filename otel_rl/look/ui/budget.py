"""How often runs that go on are read: what a reading takes is CPU that their trainers, on the same machine, lack."""

from __future__ import annotations

import threading
import time

EVERY_S = 5.0
"""Seconds between two readings of a run, at least. Its state and how far it is are known without."""
_SHARE = 0.02
_SAVED_S = 5.0
"""The share of a core that readings take in the long run, and the CPU seconds that the first ones may take at once."""


class ReadingBudget:
    """The CPU seconds that a server has for reading runs that go on."""

    def __init__(self) -> None:
        self._left, self._at = _SAVED_S, time.monotonic()
        self._lock = threading.Lock()

    def spend(self, cpu_s: float) -> float:
        """Return when the next reading may begin, by `time.monotonic`, after one that took so many CPU seconds."""
        with self._lock:
            now = time.monotonic()
            self._left = min(_SAVED_S, self._left + (now - self._at) * _SHARE) - cpu_s
            self._at = now
            return now + max(EVERY_S, -self._left / _SHARE)

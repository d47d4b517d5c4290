"""Disk space that requests leave alone: the rows of this machine must find room."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from otel_rl.otlp.answers import LATER, Refusal

if TYPE_CHECKING:
    from pathlib import Path

KEPT_FREE = 512 << 20
"""Free bytes below which requests are refused, or a twentieth of a smaller disk."""
_SMALL = 20
_MEASURE_S = 1.0


class Disk:
    """The free space of a file system, measured at most once a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._measured_at = 0.0
        self._is_full = False

    def check(self) -> None:
        """Raise if requests may take no more space.

        Raises:
            Refusal: The disk is nearly full; the client should retry later.
        """
        now = time.monotonic()
        if now - self._measured_at >= _MEASURE_S:
            found = shutil.disk_usage(self._path)
            self._is_full = found.free < min(KEPT_FREE, found.total // _SMALL)
            self._measured_at = now
        if self._is_full:
            raise Refusal(LATER, f"the disk of {self._path} is nearly full")

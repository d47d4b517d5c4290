"""Disk space that requests leave alone: the rows of this machine must find room on the disk and in the outbox."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from otel_rl.recorder.files.atomic_files import disk_usage
from otel_rl.recorder.otlp.answers import LATER, TOO_MUCH, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl.recorder.otlp.answers import RefusalKind

KEPT_FREE = 512 << 20
"""Free bytes below which requests are refused, or a twentieth of a smaller disk."""
_SMALL = 20
_MEASURE_S = 1.0


class Space:
    """A limit on disk space, measured at most once a second; a client without room should retry later."""

    def __init__(self, is_used_up: Callable[[], bool], kind: RefusalKind, text: str) -> None:
        self._measure, self._kind, self._text = is_used_up, kind, text
        self._measured_at = float("-inf")
        self._is_used_up = False

    def check(self) -> None:
        """Raise if requests may take no more space.

        Raises:
            Refusal: There is none left.
        """
        now = time.monotonic()
        if now - self._measured_at >= _MEASURE_S:
            self._is_used_up = self._measure()
            self._measured_at = now
        if self._is_used_up:
            raise Refusal(self._kind, self._text)


def of_disk(path: Path) -> Space:
    """Return the limit of a file system."""

    def is_used_up() -> bool:
        usage = shutil.disk_usage(path)
        return usage.free < min(KEPT_FREE, usage.total // _SMALL)

    return Space(is_used_up, LATER, f"the disk of {path} is nearly full")


def of_outbox(path: Path, limit_bytes: int) -> Space:
    """Return the limit of items of other programs, which leave half of an outbox to rows."""
    return Space(lambda: disk_usage(path) > limit_bytes // 2, TOO_MUCH, "too many spans have not been delivered")

"""The lease of those who look at a run: while one holds it, the archive is saved each second instead of each 10 s.

It is a file in the run directory, which only the owner of the run can write and a page renews. An agent asks whether
the file changes, by its own clock: the times of a file may be those of another machine, or forged.
"""

from __future__ import annotations

import contextlib
import stat
import time
from typing import TYPE_CHECKING

from otel_rl.recorder.files.outputs import write_into

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FILE = "watched"
RENEW_S = 3.0
"""Seconds after which who looks calls `hold_lease` again."""
_LASTS_S = 10.0
"""Seconds that the archive is saved each second after the last renewal; some network file systems show it late."""


def hold_lease(run: Path) -> bool:
    """Ask the agent of a run to save the archive each second, for the next seconds; call it again each `RENEW_S`.

    Return whether that was possible. It is not for a run of somebody else, or where nothing can be written.
    """
    with contextlib.suppress(OSError):
        write_into(run, _FILE, b"")
        return True
    return False


class SeenLease:
    """The lease of a run as its agent sees it.

    Args:
        run: The run directory.
        clock: Returns the time in seconds.
    """

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._file, self._clock = run, run / _FILE, clock
        self._last = self._state()  # an earlier attempt may have left one
        self._until = -1.0

    def is_held(self) -> bool:
        """Return whether the lease was renewed in the last seconds."""
        state, now = self._state(), self._clock()
        if state != self._last:
            self._last = state
            self._until = now + _LASTS_S if state else -1.0
        return now < self._until

    def _state(self) -> tuple[int, int] | None:
        """Return what changes when the lease is renewed; `None` unless it is a file of the owner of the run."""
        with contextlib.suppress(OSError):
            status = self._file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_uid == self._run.stat().st_uid:
                return status.st_ino, status.st_mtime_ns
        return None

"""Signs of life: files that say which process works on a part, or on its copy."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from otel_rl.journal.atomic_files import read_line, write_atomically, write_first
from otel_rl.journal.modes import make_directory

if TYPE_CHECKING:
    from pathlib import Path

_ALIVE, _TAKEN = "alive", "taken"
FRESH_S = 60.0
"""Time in seconds without a touch after which a process counts as dead."""


class Sign:
    """A file that names the process that works on a part, or on its copy; the process touches it regularly.

    Other machines may not see the locks of a machine, so they compare times of the file server.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_fresh(self) -> bool:
        """Return whether the file was touched within `FRESH_S`."""
        try:
            touched = self.path.stat().st_mtime
            probe = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            write_first(probe, b"x")
            now = probe.stat().st_mtime
            probe.unlink()
        except OSError:
            return False
        return now - touched < FRESH_S

    def who(self) -> str:
        """Return the name of the process."""
        return read_line(self.path) or "somebody"

    def put(self, who: str) -> None:
        """Create the file with the name of a process."""
        with contextlib.suppress(OSError):
            make_directory(self.path.parent)
            write_atomically(self.path, who.encode())

    def put_first(self, who: str) -> bool:
        """Create the file unless another process has; return whether it was created."""
        if self.path.exists() and not self.is_fresh():
            with contextlib.suppress(OSError):
                self.path.unlink()
        with contextlib.suppress(OSError):
            return write_first(self.path, who.encode())
        return False

    def touch(self) -> None:
        """Touch the file by writing it, so that the file server sets the time."""
        with contextlib.suppress(OSError):
            self.path.write_text(self.path.read_text())

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def alive(copy: Path) -> Sign:
    """Return the sign of the agent of the part that a copy is of."""
    return Sign(copy / _ALIVE)


def taken(copy: Path) -> Sign:
    """Return the sign of the process that delivers from a copy."""
    return Sign(copy / _TAKEN)


def own_name() -> str:
    """Return the name of this process for signs."""
    return f"pid {os.getpid()} on {socket.gethostname()}"

"""Signs of life: files that say which process works on a part, or on its copy."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ALIVE, _TAKEN = "alive", "taken"
FRESH_S = 60.0
"""Time in seconds without a touch after which a process counts as dead."""


class Sign:
    """A file that says who works on a part, or on its copy, and is touched while that is so.

    Locks of one machine may mean nothing to another one. What counts is the clock of the file server.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_fresh(self) -> bool:
        """Tell whether somebody works there, as far as is known."""
        try:
            touched = self.path.stat().st_mtime
            probe = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            probe.write_bytes(b"x")
            now = probe.stat().st_mtime
            probe.unlink()
        except OSError:
            return False
        return now - touched < FRESH_S

    def who(self) -> str:
        """Return who it is, in words."""
        try:
            return self.path.read_text()
        except (OSError, UnicodeDecodeError):
            return "somebody"

    def put(self, who: str) -> None:
        """Say that somebody works there."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(who)

    def put_first(self, who: str) -> bool:
        """Say so if nobody else does; tell whether that is so."""
        if self.path.exists() and not self.is_fresh():
            with contextlib.suppress(OSError):
                self.path.unlink()
        try:
            with self.path.open("x") as file:
                file.write(who)
        except OSError:
            return False
        return True

    def touch(self) -> None:
        """Say that it is still so: write it again, since the time of a write is the file server's."""
        with contextlib.suppress(OSError):
            self.path.write_text(self.path.read_text())

    def remove(self) -> None:
        """Take it away."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def alive(copy: Path) -> Sign:
    """Return the sign of the agent of the part that a copy is of."""
    return Sign(copy / _ALIVE)


def taken(copy: Path) -> Sign:
    """Return the sign of the process that delivers from a copy."""
    return Sign(copy / _TAKEN)


def own_name() -> str:
    """Return who this process is, in words."""
    return f"pid {os.getpid()} on {socket.gethostname()}"

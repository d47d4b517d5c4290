"""Descriptors that a process keeps for long: a number is not the file.

A program that becomes a daemon closes all descriptors, and its own files get the numbers then. So descriptors that are
kept have high numbers, which loops over the first hundreds leave alone, and each is compared with its file before it is
written or closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import NamedTuple

FIRST = 640
"""The lowest number: above those that usual loops close, below 1,024, which is the usual limit."""


class KeptDescriptor(NamedTuple):
    """A descriptor with the identity of its file."""

    number: int
    device: int
    inode: int

    @property
    def is_same(self) -> bool:
        """Whether the number is still that of the file."""
        with contextlib.suppress(OSError):
            status = os.fstat(self.number)
            return (status.st_dev, status.st_ino) == (self.device, self.inode)
        return False

    def close(self) -> None:
        """Close it, unless the number is something else's by now."""
        if self.is_same:
            os.close(self.number)


def kept(number: int) -> KeptDescriptor:
    """Return a descriptor with its identity."""
    status = os.fstat(number)
    return KeptDescriptor(number, status.st_dev, status.st_ino)


def raised(number: int) -> int:
    """Return a descriptor of the same open file with a high number, and close the other one; the same if none is free.

    It is closed in programs that the process starts.
    """
    with contextlib.suppress(OSError):
        high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST)
        os.close(number)
        return high
    return number

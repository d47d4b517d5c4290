"""Gives memory back to the system: archives and requests need much of it for milliseconds, and little in between."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Numbers of settings in glibc's `mallopt`."""
_LARGE_BYTES = 128 << 10
"""Larger blocks are given back when they are freed. By default, glibc raises this limit again and again."""


def lend_large_blocks() -> None:
    """Let the process give back large blocks when they are freed.

    By default, what stays of the files that were sealed grows to 50 MB; with this and `give_back`, the agent needs
    20 MB more while it writes an archive, and 10 MB in between. It costs 40,000 page faults in 2,000 steps, which are
    2 % of the time that the archive takes.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def share_arenas() -> None:
    """Let the threads of the process share what they have freed, of which glibc would keep some for each."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_ARENA_MAX, 2)


def give_back() -> None:
    """Give back freed memory that lies between blocks in use."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    """Return the C library; `None` if it is another one than glibc, which has other allocators."""
    try:
        library = ctypes.CDLL(None)
        return library if library.malloc_trim and library.mallopt else None
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return None

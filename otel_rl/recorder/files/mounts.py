"""The file system that a path is on, as Linux says in `/proc/self/mountinfo`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def type_of(path: Path) -> str:
    """Return the type of the file system of `path`; empty without /proc."""
    return mount_of(path).partition(" - ")[2].partition(" ")[0]


def mounts_below(path: Path) -> list[str]:
    """Return the mount points inside of a directory: bind mounts have its device, and are other files all the same."""
    inside = f"{path.resolve()}/"
    return [place for place, _ in _mounts() if place.startswith(inside)]


def mount_of(path: Path) -> str:
    """Return the line of /proc/self/mountinfo about the file system of `path`; empty if there is none."""
    best, mount = "", ""
    real = str(path.resolve())
    for place, line in _mounts():
        # `>=`: of two file systems at one mount point, the later line is mounted over the other one.
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, mount = place, line
    return mount


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield the mount points, each with its line."""
    try:
        # A mount point can be any bytes: strict UTF-8 would end the start of a run (faults/test_start.py).
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        # The kernel writes spaces, tabs, line feeds and backslashes in paths as octal numbers (proc_pid_mountinfo(5)).
        yield re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]), line

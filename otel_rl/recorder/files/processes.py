"""The processes above this one, as Linux shows them in `/proc`, and the standard descriptors of this one."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAST_STANDARD = 2
_MOST_ANCESTORS = 16
"""Number of ancestors that are searched for the launcher: shells and wrappers are between it and its ranks."""


def process(pid: int) -> str:
    """Return an identity of a process on this machine: its pid and start time."""
    try:
        return f"{pid}/{stat_fields(pid)[19]}"
    except (OSError, IndexError):
        return f"{pid}/"


def ancestors() -> list[str]:
    """Return the identities of the parent of this process, of its parent, and so on."""
    identities: list[str] = []
    parent = os.getppid()
    while parent and len(identities) < _MOST_ANCESTORS:
        identities.append(process(parent))
        try:
            parent = int(stat_fields(parent)[1])
        except (OSError, ValueError, IndexError):
            break
    return identities


def hold_standard_descriptors() -> None:
    """Open the null device for each standard descriptor that is closed.

    Otherwise files of otel-rl would get these numbers, and what the process and its children print would be in them.
    """
    with contextlib.suppress(OSError):
        while (fd := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
            os.set_inheritable(fd, True)
        os.close(fd)


def output_files() -> list[tuple[int, str, int, bytes]]:
    """Return the number, identity, size and path of standard output and error, as far as they are files."""
    files = []
    for number in (1, 2):
        with contextlib.suppress(OSError):  # it is closed
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode):
                path = os.readlink(f"/proc/self/fd/{number}".encode())  # noqa: PTH115 - a name may have any bytes
                files.append((number, file_of(status), status.st_size, path))
    return files


def file_of(status: os.stat_result) -> str:
    """Return an identity of a file on this machine: its device and inode, which are numbers of 64 bits."""
    return f"{status.st_dev}:{status.st_ino}"


def supervisor(environ: Mapping[str, str]) -> str:
    """Return the process that started the ranks of this machine; torchrun's by its directory."""
    directory, is_torchrun, _ = environ.get("TORCHELASTIC_ERROR_FILE", "").partition("/attempt_")
    return directory if is_torchrun else process(os.getppid())


def stat_fields(pid: int) -> list[str]:
    """Return the kernel's fields after the name of a process: state, parent, …, start time, …, exit status.

    Raises:
        OSError: There is no such process, or this is not Linux.
    """
    # The name of a program may have spaces, parentheses and any bytes in it: the fields begin after the last one
    # (proc_pid_stat(5)).
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()

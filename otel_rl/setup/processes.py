"""The processes above this one, as Linux shows them in `/proc`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_ANCESTORS = 16
"""Number of ancestors that are searched for the launcher: shells and wrappers are between it and its ranks."""


def process(pid: int) -> str:
    """Return an identity of a process on this machine: its pid and start time."""
    try:
        return f"{pid}/{_status(pid)[19]}"
    except (OSError, IndexError):
        return f"{pid}/"


def ancestors() -> list[str]:
    """Return the identities of the parent of this process, of its parent, and so on."""
    found: list[str] = []
    parent = os.getppid()
    while parent and len(found) < _MOST_ANCESTORS:
        found.append(process(parent))
        try:
            parent = int(_status(parent)[1])
        except (OSError, ValueError, IndexError):
            break
    return found


def supervisor(environ: Mapping[str, str]) -> str:
    """Return the process that started the ranks of this machine; torchrun's by its directory."""
    directory, found, _ = environ.get("TORCHELASTIC_ERROR_FILE", "").partition("/attempt_")
    return directory if found else process(os.getppid())


def _status(pid: int) -> list[str]:
    """Return the kernel's fields after the name of a process: state, parent, …, start time."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()

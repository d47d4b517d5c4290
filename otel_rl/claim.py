"""Which process writes which journal, and whether it still lives."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

_LOCK = "lock"


class HeldError(SettingsError):
    """Another process that lives has the name."""


class Claim(NamedTuple):
    """A journal of this process: its directory, how many attempts came before, and the lock's descriptor."""

    path: Path
    attempt: int
    lock_fd: int


def claim_journal(journals: Path, who: str) -> Claim:
    """Make the next journal of `who` and lock it for as long as this process lives.

    The lock is a POSIX one: the kernel releases it with the process, however that ends, and a forked
    child does not inherit it. So a process that was killed is told from one that is slow.

    Raises:
        HeldError: Another process that lives is `who`.
    """
    fresh = journals / f".{who}.{os.getpid()}"
    fresh.mkdir(exist_ok=True)
    lock_fd = os.open(fresh / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    fcntl.lockf(lock_fd, fcntl.LOCK_EX)
    attempt = 0
    while True:
        path = journals / f"{who}.attempt{attempt}"
        try:
            fresh.rename(path)  # locked before it has its name, so that it never looks abandoned
        except OSError:
            if not path.is_dir():
                raise
        else:
            return Claim(path, attempt, lock_fd)
        if is_held(path):
            os.close(lock_fd)
            shutil.rmtree(fresh, ignore_errors=True)
            raise HeldError(
                f"{path.name} in {journals} is being recorded by another process; "
                "give each process its own rank= (or RANK), or a role="
            )
        attempt += 1


def claim_role(journals: Path, role: str) -> tuple[Claim, int]:
    """Claim a journal for the next process of a role, and return its number among those that live."""
    for number in itertools.count():
        with contextlib.suppress(HeldError):
            return claim_journal(journals, label(role, number)), number
    raise AssertionError("there is always another number")


def label(role: str, rank: int) -> str:
    """Return what files of a process are called: `rank3`, or its role, with its number if it is not the first."""
    return f"{role}{rank or ''}" if role else f"rank{rank}"


def is_held(journal: Path) -> bool:
    """Tell whether the process that writes `journal` lives."""
    try:
        fd = os.open(journal / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False

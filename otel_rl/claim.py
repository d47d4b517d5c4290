"""Which process writes which journal."""

from __future__ import annotations

import errno
import itertools
import os
import re
import secrets
import shutil
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl.locks import Lock, is_held
from otel_rl.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

_OWNER = "owner.json"
_ABANDONED_S = 60.0
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


class HeldError(SettingsError):
    """Another process that lives has the name."""


class Claim:
    """A journal of this process, held until it is released or the process ends.

    Attributes:
        path: Its directory.
        attempt: How many attempts came before.
    """

    def __init__(self, path: Path, attempt: int, lock: Lock) -> None:
        self.path = path
        self.attempt = attempt
        self._lock = lock

    def keep(self) -> None:
        """Take the journal again if its directory was removed, or its lock's descriptor was closed by somebody.

        Raises:
            OSError: It cannot be taken.
        """
        if not self._lock.is_in_place:
            self._lock.release()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self.path, patience=0)  # on the trainer's thread: a probe is in the way for microseconds

    def release(self) -> None:
        """End the claim; a second call does nothing."""
        self._lock.release()


def claim_journal(journals: Path, who: str, attempts: Path | None = None) -> Claim:
    """Make the next journal of `who` and lock it for as long as this process lives.

    It is locked before it has its name, so that it never looks abandoned; and it holds a file by then, so that no
    other process can put its own in its place.

    Args:
        journals: The directory of the journals of this machine.
        who: What the process is called.
        attempts: Where machines that share the run directory, but not its journals, note which attempts there were.

    Raises:
        HeldError: Another process that lives is `who`.
    """
    fresh = journals / f".{who}.{secrets.token_hex(8)}"  # a pid is not unique: containers count from 1
    fresh.mkdir()
    lock = Lock(fresh)
    try:
        (fresh / _OWNER).write_bytes(_owner())
        attempt = _next_attempt(journals, who, attempts)
        while True:
            path = journals / f"{who}.attempt{attempt}"
            try:
                fresh.rename(path)
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                attempt = _next_attempt(journals, who, attempts)
                continue
            lock.moved(path)
            fresh = path
            if attempts is None or _is_first(attempts / path.name):
                return Claim(path, attempt, lock)
            attempt += 1  # another machine was quicker
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        lock.release()
        raise


def claim_role(journals: Path, role: str) -> tuple[Claim, int]:
    """Claim a journal for the next process of a role, and return its number among those that live."""
    for number in itertools.count():
        with suppress(HeldError):
            return claim_journal(journals, label(role, number)), number
    raise AssertionError("there is always another number")


def label(role: str, rank: int) -> str:
    """Return what files of a process are called: `rank3`, or its role, with its number if it is not the first."""
    return f"{role}{rank or ''}" if role else f"rank{rank}"


def remove_abandoned(*directories: Path) -> None:
    """Remove what processes left that died while they claimed a journal or replaced a file."""
    for path in (path for directory in directories for path in directory.glob(".*")):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= _ABANDONED_S:
                continue
            if not path.is_dir():
                path.unlink()
            elif not is_held(path):
                shutil.rmtree(path)


def _next_attempt(journals: Path, who: str, attempts: Path | None) -> int:
    following = _after_the_last(journals, who)
    path = journals / f"{who}.attempt{following - 1}"
    if is_held(path):
        raise HeldError(
            f"{path.name} in {journals} is being recorded by another process; "
            "give each process its own rank= (or RANK), or a role="
        )
    return following if attempts is None else max(following, _after_the_last(attempts, who))


def _after_the_last(directory: Path, who: str) -> int:
    name = re.compile(re.escape(who) + r"\.attempt(\d+)")
    attempts = [int(found[1]) for entry in os.scandir(directory) if (found := name.fullmatch(entry.name))]
    return max(attempts, default=-1) + 1


def _is_first(path: Path) -> bool:
    """Make a file; tell whether nobody had made it before, on whatever machine."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _owner() -> bytes:
    """Return who claims, for people who look into the directory."""
    return msgspec.json.encode({"host": socket.gethostname(), "pid": os.getpid(), "time": time.time_ns()})

"""Claims: which process writes which journal."""

from __future__ import annotations

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

from otel_rl.recorder.errors import UnavailableError
from otel_rl.recorder.files.atomic_files import read_json, write_atomically, write_first
from otel_rl.recorder.files.locks import LONG_S, Lock, is_held
from otel_rl.recorder.files.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_OWNER = "owner.json"
# A temporary file lives for milliseconds. A start that waits longer for its turn has locked its directory, which stays
# (faults/test_identity.py).
_ABANDONED_S = 60.0
_ID_BYTES = 8
_JOURNAL = re.compile(r"[\w-][\w.-]*\.attempt\d{1,9}\.[0-9a-f]+", re.ASCII)
_PART = re.compile(r"[\w-][\w.-]*")
_RANK = re.compile("rank[0-9]+")


class Noted(msgspec.Struct, frozen=True):
    """An entry of the run directory about a journal of a rank; other machines read it, and it outlives the journal."""

    journal: str = ""
    part: str = ""  # the part of the run directory that holds the journal
    host: str = ""
    process: str = ""  # pid and start time
    supervisor: str = ""  # the process that restarts it if it fails
    command: str = ""  # digest of its command line
    is_delivered: bool = False  # whether every exporter has delivered all records of the journal


class HeldError(UnavailableError):
    """A running process holds the journal of this rank or role."""

    holder: int | None = None  # its pid, on its host; `None` if that is unknown


class JournalOwner(msgspec.Struct, frozen=True):
    """The process that made a journal, as `owner.json` in it has it."""

    pid: int
    time: int = 0  # Unix time in nanoseconds
    host: str = ""


class Claim:
    """A journal of this process, held until it is released or the process ends."""

    def __init__(self, path: Path, attempt: int, lock: Lock) -> None:
        self.path = path
        self.attempt = attempt
        self._lock = lock

    @property
    def is_in_place(self) -> bool:
        """Whether the journal is still locked and still at its path."""
        return self._lock.is_in_place

    @property
    def is_closed(self) -> bool:
        """Whether the journal is at its path, and only the descriptor of its lock was closed."""
        return not self._lock.is_open and self.path.is_dir()

    def keep(self) -> None:
        """Lock the journal again if its directory is gone, or other code closed the descriptor of the lock.

        Raises:
            OSError: The journal cannot be locked.
        """
        if not self._lock.is_in_place:
            self._lock.release()
            make_directory(self.path)
            self._lock = Lock(self.path, patience=0)  # does not wait, since this is the trainer's thread

    def keep_until_exit(self) -> None:
        """Hold the journal until the process has exited."""
        self._lock.keep()

    def release(self) -> None:
        """End the claim; a second call does nothing."""
        self._lock.release()


def claim_journal(
    journals: Path,
    who: str,
    attempts: Path | None = None,
    *,
    entry: Noted = Noted(),  # noqa: B008 - it is immutable
    decide: Callable[[], int] = lambda: 0,
) -> Claim:
    """Make a journal of `who` and lock it until this process ends.

    It is locked before it gets its name, so that it never looks abandoned. The name ends with a unique id, so that
    cursors of a removed journal are never applied to another one of the same attempt.

    Args:
        journals: The directory of the journals of this machine.
        who: The label of the process, such as `rank3`.
        attempts: The directory of the entries about attempts, shared by the machines that share the run directory.
        entry: What is noted there about the journal.
        decide: Returns the number of the attempt; of one machine, one process at a time calls it.

    Raises:
        HeldError: A running process is `who`.
    """
    own = secrets.token_hex(_ID_BYTES)  # a pid is not unique: containers count from 1
    fresh = journals / f".{who}.{own}"
    make_directory(fresh)
    lock = Lock(fresh)
    try:
        owner = JournalOwner(os.getpid(), time.time_ns(), socket.gethostname())
        write_first(fresh / _OWNER, msgspec.json.encode(owner))  # for people who look into the directory
        # The next process must see this one as running: it decides when this journal has its name and is locked.
        with Lock(journals, patience=LONG_S):
            _check_free(journals, who)
            attempt = decide()
            path = journals / f"{who}.attempt{attempt}.{own}"
            if attempts is not None:
                noted = msgspec.structs.replace(entry, journal=path.name)
                # Before the journal has its name: one that is removed before it was read is then known to be missing
                # (faults/test_removed.py).
                write_first(attempts / path.name, msgspec.json.encode(noted))
            fresh.rename(path)
            # From here on, an interrupt has to remove the journal under its new name (faults/test_interrupts.py).
            fresh = path
        lock.moved(path)
        return Claim(path, attempt, lock)
    except BaseException:
        # Removed before it is unlocked: a free journal would be taken for that of a process that died
        # (faults/test_interrupts.py).
        shutil.rmtree(fresh, ignore_errors=True)
        lock.release()
        raise


def claim_role(
    journals: Path,
    role: str,
    decide: Callable[[], int] = lambda: 0,
    *,
    first: int = 0,
    stride: int = 1,
    attempts: Path | None = None,
    entry: Noted = Noted(),  # noqa: B008 - it is immutable
) -> tuple[Claim, int]:
    """Claim a journal for a process of a role; return the claim and the process's number.

    It is the first number that no running process has, of `first`, `first + stride` and so on.
    """
    for number in itertools.count(first, stride):
        with suppress(HeldError):
            return claim_journal(journals, label(role, number), attempts, entry=entry, decide=decide), number
    raise AssertionError("there is always another number")


def _check_free(journals: Path, who: str) -> None:
    for path in journals.iterdir():
        if is_journal(path.name) and who_of(path.name) == who and is_held(path):
            error = HeldError(
                f"{path.name.rpartition('.')[0]} in {journals} is being recorded by another process: "
                "give each process its own rank= (or RANK), or a role="
            )
            owner = read_json(path / _OWNER, JournalOwner)
            error.holder = owner.pid if owner is not None and owner.host == socket.gethostname() else None
            raise error


def noted(attempts: Path) -> dict[str, set[str]]:
    """Return the journals that are not completely delivered, by part of the run directory."""
    journals: dict[str, set[str]] = {}
    with suppress(FileNotFoundError):
        for path in attempts.iterdir():
            if (entry := read_entry(path)) is not None and not entry.is_delivered:
                journals.setdefault(entry.part, set()).add(entry.journal)
    return journals


def is_all_delivered(attempts: Path, part: str) -> bool:
    """Return whether journals of a part of the run directory are known, and all are completely delivered."""
    with suppress(FileNotFoundError):
        entries = [
            entry for path in attempts.iterdir() if (entry := read_entry(path)) is not None and entry.part == part
        ]
        return bool(entries) and all(entry.is_delivered for entry in entries)
    return False


def is_journal(name: str) -> bool:
    """Return whether a directory name is that of a journal."""
    return _JOURNAL.fullmatch(name) is not None


def who_of(journal: str) -> str:
    """Return the label of the process in the name of a journal."""
    return journal.rpartition(".attempt")[0]


def is_rank(who: str) -> bool:
    """Return whether a label is that of a rank, not of a process with a role."""
    return _RANK.fullmatch(who) is not None


def process_in(who: str) -> tuple[str, int]:
    """Return the role and the rank in a label, as `label` wrote them."""
    role = who.rstrip("0123456789")
    return "" if role == "rank" else role, int(who[len(role) :] or 0)


def attempt_of(journal: str) -> int:
    """Return the attempt number in the name of a journal."""
    return int(journal.rpartition(".")[0].rpartition(".attempt")[2])


def mark_delivered(attempts: Path, journals: Iterable[str]) -> None:
    """Record that every exporter has delivered all records of these journals.

    Raises:
        OSError: An entry cannot be written.
    """
    for journal in journals:
        path = attempts / journal
        entry = read_entry(path)
        if entry is not None and not entry.is_delivered:
            write_atomically(path, msgspec.json.encode(msgspec.structs.replace(entry, is_delivered=True)))


def read_entry(path: Path) -> Noted | None:
    """Read an entry; return `None` if it is missing, incomplete or invalid, since others can write there too."""
    entry = read_json(path, Noted) if is_journal(path.name) else None
    return entry if entry is not None and entry.journal == path.name and _PART.fullmatch(entry.part) else None


def label(role: str, rank: int) -> str:
    """Return the label of a process in file names: `rank3`, or its role with its number, if that is not 0."""
    return f"{role}{rank or ''}" if role else f"rank{rank}"


def remove_abandoned(*directories: Path) -> None:
    """Remove temporary files and directories of processes that died while claiming a journal or replacing a file."""
    for path in (path for directory in directories for path in directory.glob(".*")):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= _ABANDONED_S:
                continue
            if not path.is_dir():
                path.unlink()
            elif not is_held(path):
                shutil.rmtree(path)

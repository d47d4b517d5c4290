"""Which process writes which journal."""

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

from otel_rl.errors import UnavailableError
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.locks import LONG_S, Lock, is_held

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_OWNER = "owner.json"
_ABANDONED_S = 60.0
_ID_BYTES = 8
_JOURNAL = re.compile(r"[\w-][\w.-]*\.attempt\d{1,9}\.[0-9a-f]+", re.ASCII)
_PART = re.compile(r"[\w-][\w.-]*")


class Noted(msgspec.Struct, frozen=True):
    """What is noted of an attempt of a rank in the run directory, for all machines and for when its journal is gone.

    Attributes:
        journal: The name of its journal.
        part: In which part of the run directory that is.
        is_delivered: If true, every exporter has got all of it.
    """

    journal: str
    part: str
    is_delivered: bool = False


class HeldError(UnavailableError):
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

    @property
    def is_in_place(self) -> bool:
        """Whether the journal is held, and where it was made."""
        return self._lock.is_in_place

    def follow(self) -> bool:
        """Take note of where the journal is now if it was moved; tell whether it was."""
        place = self._lock.moved_to()
        if place is None:
            return False
        self._lock.moved(place)
        self.path = place
        return True

    def keep(self) -> None:
        """Take the journal again if its directory was removed, or its lock's descriptor was closed by somebody.

        Raises:
            OSError: It cannot be taken.
        """
        if not self._lock.is_in_place:
            self._lock.release()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self.path, patience=0)  # on the trainer's thread: a probe is in the way for microseconds

    def keep_until_exit(self) -> None:
        """Hold the journal until the process is gone."""
        self._lock.keep()

    def release(self) -> None:
        """End the claim; a second call does nothing."""
        self._lock.release()


def claim_journal(journals: Path, who: str, attempts: Path | None = None, *, least: int = 0, part: str = "") -> Claim:
    """Make the next journal of `who` and lock it for as long as this process lives.

    It is locked before it has its name, so that it never looks abandoned. The name ends with an id that no other
    journal has: what is known of a journal that was removed is never applied to another one with its number.

    Args:
        journals: The directory of the journals of this machine.
        who: What the process is called.
        attempts: Where the attempts are noted, so that their number outlives the journals; shared by the machines
            that share the run directory.
        least: The first number that the attempt may have.
        part: What the part of this machine is called in the run directory.

    Raises:
        HeldError: Another process that lives is `who`.
    """
    own = secrets.token_hex(_ID_BYTES)  # a pid is not unique: containers count from 1
    fresh = journals / f".{who}.{own}"
    fresh.mkdir()
    lock = Lock(fresh)
    try:
        (fresh / _OWNER).write_bytes(_owner())
        with Lock(journals, patience=LONG_S):  # one claim at a time on this machine
            attempt = max(least, _next_attempt(journals, who, attempts))
            while not _is_first(attempts, Noted(f"{_name(who, attempt)}.{own}", part)):
                attempt += 1  # another machine was quicker
            path = journals / f"{_name(who, attempt)}.{own}"
            fresh.rename(path)
            fresh = path
        lock.moved(path)
        return Claim(path, attempt, lock)
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


def has_attempts(directory: Path, who: str) -> bool:
    """Tell whether a directory, of journals or of what is noted of attempts, has something of a process."""
    try:
        return bool(_attempts(directory, who))
    except FileNotFoundError:
        return False


def noted(attempts: Path) -> dict[str, set[str]]:
    """Return for each part the journals that are noted, and not as delivered."""
    found: dict[str, set[str]] = {}
    try:
        notes = [_read(path) for path in attempts.iterdir()]
    except FileNotFoundError:
        return found
    for one in notes:
        if one is not None and not one.is_delivered:
            found.setdefault(one.part, set()).add(one.journal)
    return found


def is_journal(name: str) -> bool:
    """Tell whether a name is that of a journal of this machine."""
    return _JOURNAL.fullmatch(name) is not None


def attempt_of(journal: str) -> int:
    """Return the number of the attempt that a journal is of."""
    return int(journal.rpartition(".")[0].rpartition(".attempt")[2])


def settle(attempts: Path, journals: Iterable[str]) -> None:
    """Note of journals that every exporter has got all of them.

    Raises:
        OSError: It cannot be written.
    """
    for journal in journals:
        path = attempts / journal.rpartition(".")[0]
        one = _read(path)
        if one is not None and one.journal == journal and not one.is_delivered:
            write_atomically(path, msgspec.json.encode(msgspec.structs.replace(one, is_delivered=True)))


def _read(path: Path) -> Noted | None:
    """Return a note; `None` if it is gone, not written yet, or not what a rank writes: others may write there."""
    try:
        one = msgspec.json.decode(path.read_bytes(), type=Noted)
    except (OSError, msgspec.MsgspecError):
        return None
    is_own = one.journal.rpartition(".")[0] == path.name and _JOURNAL.fullmatch(one.journal)
    return one if is_own and _PART.fullmatch(one.part) else None


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


def _name(who: str, attempt: int) -> str:
    return f"{who}.attempt{attempt}"


def _next_attempt(journals: Path, who: str, attempts: Path | None) -> int:
    found = _attempts(journals, who)
    last = max(found, default=-1)
    for path in found.get(last, ()):
        if is_held(path):
            raise HeldError(
                f"{_name(who, last)} in {journals} is being recorded by another process; "
                "give each process its own rank= (or RANK), or a role="
            )
    return 1 + (last if attempts is None else max(last, *_attempts(attempts, who), -1))


def _attempts(directory: Path, who: str) -> dict[int, list[Path]]:
    """Return what a directory has of each attempt of `who`."""
    name = re.compile(re.escape(who) + r"\.attempt(\d+)(\.[0-9a-f]+)?")
    attempts: dict[int, list[Path]] = {}
    for path in directory.iterdir():
        if found := name.fullmatch(path.name):
            attempts.setdefault(int(found[1]), []).append(path)
    return attempts


def _is_first(attempts: Path | None, noted: Noted) -> bool:
    """Note an attempt; tell whether nobody had noted one with its number before, on whatever machine."""
    if attempts is None:
        return True
    try:
        with (attempts / noted.journal.rpartition(".")[0]).open("xb") as file:
            file.write(msgspec.json.encode(noted))
    except FileExistsError:
        return False
    return True


def _owner() -> bytes:
    """Return who claims, for people who look into the directory."""
    return msgspec.json.encode({"host": socket.gethostname(), "pid": os.getpid(), "time": time.time_ns()})

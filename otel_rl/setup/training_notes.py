"""The notes of the trainings of a job: one file for each training, and one for each rank that has joined it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from otel_rl.errors import UNDECODABLE
from otel_rl.journal.atomic_files import write_first
from otel_rl.journal.modes import make_directory
from otel_rl.journal.own_files import check_own
from otel_rl.setup.launcher import Launch

if TYPE_CHECKING:
    from pathlib import Path

_MOST_ATTEMPTS = 1 << 30
_WRITTEN_WITHIN_S = 1.0
"""Seconds between the creation of a note and the arrival of its text, on a network file system."""
_POLL_S = 0.01

T = TypeVar("T")


class Training(msgspec.Struct, frozen=True):
    """A training of a job, as its first rank noted it."""

    id: str  # of its run
    attempt: int  # of its run
    label: str  # project and name, which all of its ranks have in common
    launch: Launch  # the start of the rank that noted it
    host: str  # name of the host of that rank
    command: str  # digest of that rank's command line
    time: float  # of the note, in seconds of the wall clock


class Joined(msgspec.Struct, frozen=True):
    """A start of a rank, as it noted it."""

    host: str
    process: str
    supervisor: str  # the process that restarts it if it fails
    command: str  # digest of its command line


class Notes:
    """The notes of the trainings of a job.

    Args:
        place: Their directory; it is created.
        job: Identity of the job.
        restarts: Number of restarts of the job so far.

    Raises:
        OSError: The directory cannot be created.
    """

    def __init__(self, place: Path, job: str, restarts: int) -> None:
        self.place = place
        self._job, self._restarts = job, restarts
        self._taken: set[tuple[int, int]] = set()
        make_directory(place)
        check_own(place.parent)
        check_own(place)

    def read(self) -> dict[tuple[int, int], Training]:
        """Return all trainings by restarts of the job, and number since that restart."""
        found: dict[tuple[int, int], Training] = {}
        for path in self.place.iterdir():
            if match := re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", path.name):
                key = int(match[1]), int(match[2])
                self._taken.add(key)
                if (one := _decoded(path, Training)) is not None and self._is_possible(one):
                    found[key] = one
        return found

    def _is_possible(self, training: Training) -> bool:
        """Return whether a rank may have noted this: other users may write to a shared directory."""
        base, end = self._job, training.id.removeprefix(self._job)
        is_of_job = training.id.startswith(base) and bool(re.fullmatch(r"(-[0-9]{1,9})?", end))
        return is_of_job and 0 <= training.attempt < _MOST_ATTEMPTS

    def joined(self, number: int, who: str) -> Joined | None:
        """Return the note that a rank has joined a training since the last restart; `None` if there is none."""
        return _decoded(self.place / f"{self._restarts}.{number}.{who}", Joined)

    def write(self, name: str, content: Training | Joined) -> Path | None:
        """Write a note that does not exist yet; return its path, `None` if another rank was faster."""
        path = self.place / f"{self._restarts}.{name}"
        return path if write_first(path, msgspec.json.encode(content)) else None

    def free(self) -> int:
        """Return the number of the next training; trainings with damaged notes keep their number."""
        return 1 + max((number for restarts, number in self._taken if restarts == self._restarts), default=0)


def _decoded(path: Path, type_: type[T]) -> T | None:
    """Return a note; `None` if there is none, or its writer died before it was complete."""
    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while True:
        try:
            return msgspec.json.decode(path.read_bytes(), type=type_)
        except FileNotFoundError:
            return None
        except UNDECODABLE:
            if time.monotonic() > deadline:
                return None
        time.sleep(_POLL_S)

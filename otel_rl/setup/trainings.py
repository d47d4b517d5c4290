"""The run and the attempt of a start of the trainer, if the launcher identifies a job and not a run.

In one job there may be several trainings, one after the other or at once. The ranks of a training must agree on its
run without communication. The first rank to start notes the training in a log next to the run directories, and the
others find it there. Each rank also notes the training that it has joined, so that its next start joins the next one.

docs/explanation/resumed-runs.md has the rule for what is another attempt, and what is another run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from otel_rl.errors import UNDECODABLE
from otel_rl.journal import exit_status
from otel_rl.journal.atomic_files import read_json
from otel_rl.journal.claim import label
from otel_rl.journal.locks import is_held
from otel_rl.journal.reader import Reader
from otel_rl.journal.records import Finished
from otel_rl.journal.segments import Position, segment_numbers
from otel_rl.setup import directory as directories
from otel_rl.setup.launcher import Launch, find_launch
from otel_rl.setup.processes import ancestors, process
from otel_rl.setup.settings import JobSettings
from otel_rl.setup.training_notes import Joined, Notes, Training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.setup.settings import Settings

_JOIN_WITHIN_S = 1800.0
"""Seconds within which other ranks join a training after its first rank: the timeout of `torch.distributed`."""
_MOST_TRIES = 100


class Start(NamedTuple):
    """The run and the attempt of a start of the trainer."""

    settings: Settings  # with the identity of the run
    attempt: int = 0  # the lowest number that it can have: journals may have that number already
    note: Path | None = None  # that this rank has joined the training

    def withdraw(self) -> None:
        """Remove the note that the rank has joined."""
        if self.note is not None:
            with contextlib.suppress(OSError):
                self.note.unlink()


def find_start(settings: Settings) -> Start:
    """Return the run and the attempt of this start; an identity that the user gave is that of one run."""
    launch = find_launch(os.environ)
    if not isinstance(settings, JobSettings):
        return Start(settings, launch.restarts)
    try:
        return _Log(settings, launch).find()
    except OSError:  # creating the run directory fails too, or says why
        return Start(settings, launch.restarts)


def renamed(settings: Settings, run_id: str) -> Settings:
    """Return the settings with another identity, and with the default name that follows from it."""
    return replace(settings, id=run_id, name=run_id if settings.name == settings.id else settings.name)


class _Log:
    """The log of the trainings of a job."""

    def __init__(self, settings: Settings, launch: Launch) -> None:
        self._settings, self._launch = settings, launch
        self._who = label(settings.role, settings.rank)
        self._label = f"{settings.project}/{'' if settings.name == settings.id else settings.name}"
        self._own = Joined(socket.gethostname(), process(os.getpid()), launch.supervisor, _command())
        place = Path(settings.dir).absolute() / f".trainings-{os.getuid()}" / settings.id
        self._notes = Notes(place, settings.id, launch.restarts)

    def find(self) -> Start:
        """Return the training that this start belongs to; note it if this is its first rank.

        Raises:
            OSError: The log cannot be written.
        """
        for _ in range(_MOST_TRIES):
            trainings = self._notes.read()
            here = {number: one for (restarts, number), one in trainings.items() if restarts == self._launch.restarts}
            joined = {number: one for number in here if (one := self._notes.joined(number, self._who)) is not None}
            if (around := self._around(here, joined)) is not None:
                return self._start(around)
            number = self._of_a_role(here) if self._settings.role else self._to_join(here, joined)
            if number is None:
                self._notes.write(f"{self._notes.free()}", self._next(trainings, here, joined))
            elif self._settings.role:
                return self._start(here[number])
            elif (note := self._notes.write(f"{number}.{self._who}", self._own)) is not None:
                return self._start(here[number], note)
        raise TimeoutError(f"{self._notes.place} changes constantly")

    def _start(self, training: Training, note: Path | None = None) -> Start:
        attempt = 0 if self._settings.role else training.attempt
        return Start(renamed(self._settings, training.id), attempt, note)

    def _around(self, here: dict[int, Training], joined: dict[int, Joined]) -> Training | None:
        """Return the running training of a process above this one; it already has this rank."""
        above = ancestors()
        for number, note in joined.items():
            is_above = note.host == self._own.host and note.process in above
            if is_above and any(map(is_held, self._journals(here[number], self._who))):
                return here[number]
        return None

    def _to_join(self, here: dict[int, Training], joined: dict[int, Joined]) -> int | None:
        """Return the number of the training that another rank noted and this one belongs to."""
        fitting = [number for number in sorted(here) if number not in joined and self._fits(here[number])]
        if self._launch.supervisor:  # it restarts all ranks, and adds new ones
            return next((number for number in reversed(fitting) if number > max(joined, default=0)), None)
        return min(fitting, key=lambda number: (here[number].command != self._own.command, number), default=None)

    def _fits(self, training: Training) -> bool:
        other, own = training.launch, self._launch
        if training.label != self._label or (other.port and own.port and other.port != own.port):
            return False
        if (training.host, other.supervisor) == (self._own.host, own.supervisor) and own.supervisor:
            return other.supervised == own.supervised
        return abs(time.time() - training.time) < _JOIN_WITHIN_S

    def _of_a_role(self, here: dict[int, Training]) -> int | None:
        """Return the number of the training of a process with a role: the last one, unless it has ended."""
        last = max((number for number, one in here.items() if one.label == self._label), default=None)
        if last is None:
            return None
        journals = self._journals(here[last], "rank*")
        has_ended = bool(journals) and all(_has_finished(journal) for journal in journals)
        return None if has_ended else last

    def _next(
        self, trainings: dict[tuple[int, int], Training], here: dict[int, Training], joined: dict[int, Joined]
    ) -> Training:
        """Return the training that begins with this rank."""
        own = [number for number in sorted(here) if number in joined and here[number].label == self._label]
        everything = [trainings[key] for key in sorted(trainings)]
        if own and self._goes_on(here[own[-1]], joined[own[-1]]):
            return self._noted(everything, here[own[-1]].id)
        begun = len({here[number].id for number in own})
        alike = {key: one.id for key, one in sorted(trainings.items()) if one.label == self._label}
        before = (run_id for (restarts, _), run_id in alike.items() if restarts < self._launch.restarts)
        earlier = list(dict.fromkeys(before))  # a restarted job begins with its first run
        if not self._settings.role and begun < len(earlier):
            return self._noted(everything, earlier[begun])
        return self._noted(everything, self._new_id({one.id for one in everything}))

    def _noted(self, everything: Sequence[Training], run_id: str) -> Training:
        attempt = 1 + max((one.attempt for one in everything if one.id == run_id), default=-1)
        if not everything:
            attempt = self._launch.restarts  # earlier attempts are unknown in this directory
        own = self._own
        return Training(run_id, attempt, self._label, self._launch, own.host, own.command, time.time())

    def _new_id(self, taken: set[str]) -> str:
        base, number = self._settings.id, len(taken) + 1
        if not taken:
            return base
        while f"{base}-{number}" in taken or self._path_of(f"{base}-{number}").exists():
            number += 1
        return f"{base}-{number}"

    def _goes_on(self, last: Training, note: Joined) -> bool:
        """Return whether this start continues the last training of this rank."""
        own = self._own
        if note.host == own.host and note.process == own.process:
            return False  # the same process ended that run, and begins another one
        if note.host == own.host and note.supervisor and note.supervisor == own.supervisor:
            return True
        journals = self._journals(last, self._who)
        if any(is_held(journal) or _has_finished(journal) for journal in journals):
            return False
        if not journals and self._has_ended(last):
            return False
        return self._launch.resumes and note.command == own.command

    def _has_ended(self, training: Training) -> bool:
        """Return whether a training of another machine has finished, or its run directory was removed."""
        place = self._path_of(training.id)
        return not place.exists() or read_json(place / "run.end.json", _RunEnd) == _RunEnd(training.attempt, "finished")

    def _journals(self, training: Training, who: str) -> list[Path]:
        journals = directories.at(self._path_of(training.id)).journals
        return [*journals.glob(f"{who}.attempt{training.attempt}.*")]

    def _path_of(self, run_id: str) -> Path:
        return directories.place_of(renamed(self._settings, run_id))


class _RunEnd(msgspec.Struct, frozen=True):
    """The end of an attempt, which the JSONL exporter writes to the run directory for all machines."""

    attempt: int
    outcome: str


def _command() -> str:
    """Return a digest of the command line, which may contain secrets."""
    return hashlib.sha256("\0".join(sys.orig_argv).encode(errors="surrogateescape")).hexdigest()[:16]


def _has_finished(journal: Path) -> bool:
    """Return whether the process of a journal ended in order, by its exit status or its last record."""
    end = exit_status.read(journal)
    if end is None:
        for raw in _last_records(journal):
            with contextlib.suppress(*UNDECODABLE):
                end = msgspec.msgpack.decode(raw, type=Finished)
    return end is not None and end.outcome == "finished"


def _last_records(journal: Path) -> list[msgspec.Raw]:
    """Return the last record of a journal as a list; empty if its last two segments have none."""
    last: list[msgspec.Raw] = []
    for number in reversed(segment_numbers(journal)[-2:]):
        reader = Reader(journal, msgspec.Raw, Position(number, 0))
        while found := reader.read():
            last = found[-1:]
        reader.close()
        if last:
            break
    return last

"""Which run a start belongs to, if the launcher identifies a job and not a run.

In one job there may be several trainings, one after the other or at once. Their runs are `JOB`, `JOB-2`, `JOB-3` and
so on. The first process of a training reserves the number in a directory next to the run directories; everything else
is in the run directories (`attempt_entries`). docs/explanation/resumed-runs.md has the rule.

Trainings in other directories get other numbers too (`claims`), also if the user gave the id: `OTEL_RL_RUN_ID` is the
same in all jobs of Hydra.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.attempt_entries import (
    AttemptSeen,
    begun_at,
    has_finished,
    journals_here,
    newest,
    own_entries,
    read_start,
)
from otel_rl.recorder.directory.attempts import belongs, this_start
from otel_rl.recorder.directory.claims import claim
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import number_in, write_first
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.files.modes import chosen
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.processes import ancestors
from otel_rl.recorder.journal.claim import attempt_of, who_of
from otel_rl.recorder.settings.settings import GivenIdSettings, JobSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.recorder.directory.attempt_entries import Start
    from otel_rl.recorder.journal.claim import Noted
    from otel_rl.recorder.settings.settings import Settings

logger = log_of("otel_rl")
_MOST_TRIES = 100


class RunOfStart(NamedTuple):
    """The run of a start."""

    settings: Settings  # with the identity of the run
    least: int  # the lowest number of an attempt that begins: earlier ones may be unknown here


def find_run(settings: Settings) -> RunOfStart:
    """Return the run of this start; an identity that the user gave is that of one run in one directory."""
    own = this_start(settings)
    if isinstance(settings, JobSettings):
        try:
            return _Job(settings, own).find()
        except OSError:  # creating the run directory fails too, or says why
            pass
    elif isinstance(settings, GivenIdSettings) and not settings.role and _has_all_ranks_here(settings):
        return RunOfStart(_unclaimed(settings), own.launch.restarts)
    return RunOfStart(settings, own.launch.restarts)


def renamed(settings: Settings, run_id: str) -> Settings:
    """Return the settings with another identity, and with the default name that follows from it."""
    return replace(settings, id=run_id, name=run_id if settings.name == settings.id else settings.name)


def _numbered(settings: Settings, number: int) -> Settings:
    return settings if number == 1 else renamed(settings, f"{settings.id}-{number}")


def _has_all_ranks_here(settings: Settings) -> bool:
    """Return whether this machine knows all directories of the run."""
    return not settings.head and settings.world_size in (1, settings.local_world_size)


def _unclaimed(settings: Settings) -> Settings:
    """Return the settings with the first number that this directory has, or no other one."""
    settings_of = partial(_numbered, settings)
    own = (number for number in range(1, _MOST_TRIES) if directories.place_of(settings_of(number)).is_dir())
    number = claim(settings_of, chain(own, count(1)))
    if number > 1:
        logger.warning(
            "another directory has run %s of project %s, and this one has run %s: give each training an id of its "
            "own; to continue a run, set OTEL_RL_DIR",
            *(settings.id, settings.project, settings_of(number).id),
        )
    return settings_of(number)


class _Run(NamedTuple):
    """A run of the job, as the process that starts sees it."""

    number: int
    reserved: Start
    seen: AttemptSeen  # its newest attempt
    last: Noted | None  # the last journal of the same rank since the job was requeued
    is_held: bool  # whether a running process is the same rank
    has_finished: bool  # whether that rank ended in order


class _Job:
    """The runs of a job, for a start of a process."""

    def __init__(self, settings: Settings, own: Start) -> None:
        self._settings, self._own = settings, own
        self._place = Path(settings.dir).absolute() / f".trainings-{os.getuid()}" / settings.id
        for level in (self._place.parent, self._place):
            with OwnDirectory(level, chosen().directory, closes=True):
                pass

    def find(self) -> RunOfStart:
        """Return the run that the start belongs to; reserve one if it is the first start of a training.

        Raises:
            OSError: Nothing can be reserved.
        """
        for _ in range(_MOST_TRIES):
            taken = sorted(number for path in self._place.iterdir() if (number := number_in(path.name)))
            number = self._choose([run for number in taken if (run := self._read_run(number)) is not None])
            if number is not None:
                return self._found(number)
            numbers = filter(self._is_free, count(1 + max(taken, default=0)))
            number = claim(self._settings_of, numbers) if _has_all_ranks_here(self._settings) else next(numbers)
            # A start that comes second looks at all runs again: the first one may be another rank of the same training
            # (faults/test_trainings.py).
            if write_first(self._place / f"{number}", msgspec.json.encode(self._own)):
                return self._found(number)
        raise TimeoutError(f"{self._place} changes constantly")

    def _choose(self, runs: Sequence[_Run]) -> int | None:
        """Return the number of the run that the start belongs to; `None` if a new run begins."""
        was_in = [run for run in runs if run.last is not None]
        if not self._own.is_rank:
            candidates = [run for run in runs[-1:] if run.seen.state != "finished"]
        else:
            again = [run for run in (was_in or runs)[-1:] if self._continues(run)]
            candidates = (
                [run for run in was_in if self._is_above(run)]
                or [run for run in again if run.seen.state == "running"]
                or self._joined(runs, was_in[-1].number if was_in else 0)
                or again
                or self._before_requeue(runs)[len(was_in) :]
            )
        return candidates[0].number if candidates else None

    def _is_above(self, run: _Run) -> bool:
        """Return whether the same rank of the run is a parent of this process, which then belongs to it."""
        return run.is_held and run.last is not None and run.last.process in ancestors()

    def _continues(self, run: _Run) -> bool:
        """Return whether the start is one more of a training that failed: of this rank, or before it was there."""
        own, begun, last, is_over = self._own, run.seen.begun, run.last, run.is_held or run.has_finished
        if last is None and begun is not None and begun.launch.restarts == own.launch.restarts:
            last, is_over = begun.noted(""), run.seen.state != "failed"
        if last is None or (last.host, last.process) == (own.host, own.process):
            return False  # the process itself ended that run, and begins another one
        if own.has_supervisor(last.host, last.supervisor):
            return True
        return own.launch.resumes and last.command == own.command and not is_over

    def _joined(self, runs: Sequence[_Run], last: int) -> list[_Run]:
        """Return the run to whose newest attempt the start belongs, after the run that its rank was in last."""
        fitting = [run for run in runs if not run.is_held and not run.seen.had_own and self._fits(run)]
        if self._own.launch.supervisor:  # it restarts all ranks, and adds new ones
            return [run for run in fitting if run.number >= last][-1:]
        return sorted(fitting, key=lambda run: run.reserved.command != self._own.command)[:1]

    def _fits(self, run: _Run) -> bool:
        port = (run.seen.begun or run.reserved).launch.port
        return port in ("", self._own.launch.port or port) and belongs(self._own, run.seen)

    def _before_requeue(self, runs: Sequence[_Run]) -> list[_Run]:
        """Return the runs from before the job was requeued: it begins again with the first one."""
        return [run for run in runs if run.reserved.launch.restarts < self._own.launch.restarts]

    def _read_run(self, number: int) -> _Run | None:
        """Return the run with a number; `None` if it is of a training with another project or name."""
        own, reserved = self._own, read_start(self._place / f"{number}")
        if reserved is None or reserved.label != own.label:
            return None
        directory = directories.at(directories.place_of(self._settings_of(number)))
        seen = newest(directory, own.who)
        if seen is None:  # it has not begun yet, or its directory was removed
            seen = AttemptSeen(0, reserved, has_ranks=reserved.is_rank, had_own=reserved.who == own.who)
        last = None
        for entry in own_entries(directory, own.who):
            begun = read_start(begun_at(directory, attempt_of(entry.journal)))
            if begun is None or begun.launch.restarts == own.launch.restarts:
                last = entry
        ranks = {path.name: path for path in journals_here(directory) if who_of(path.name) == own.who}
        journal = None if last is None else ranks.get(last.journal)
        return _Run(
            number=number,
            reserved=reserved,
            seen=seen,
            last=last,
            is_held=any(map(is_held, ranks.values())),
            has_finished=seen.state == "finished" if journal is None else has_finished(journal),
        )

    def _found(self, number: int) -> RunOfStart:
        return RunOfStart(self._settings_of(number), self._own.launch.restarts if number == 1 else 0)

    def _is_free(self, number: int) -> bool:
        return number == 1 or not directories.place_of(self._settings_of(number)).exists()

    def _settings_of(self, number: int) -> Settings:
        return _numbered(self._settings, number)

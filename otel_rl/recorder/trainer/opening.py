"""Begin the recording of a process: as the settings say, or in another way if the machine does not allow that."""

from __future__ import annotations

import os
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.attempt_entries import newest
from otel_rl.recorder.directory.directory import RunDirectory
from otel_rl.recorder.directory.trainings import find_run, renamed
from otel_rl.recorder.errors import SettingsError, UnavailableError
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.files.modes import share_with
from otel_rl.recorder.files.private_directories import private_directory
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.journal.claim import HeldError, label
from otel_rl.recorder.journal.sink import NOWHERE, Sink
from otel_rl.recorder.secrets import REDACTED, redacted
from otel_rl.recorder.settings.given import function_at
from otel_rl.recorder.settings.settings import Settings
from otel_rl.recorder.trainer.descent import as_worker, in_place_of_rerun, is_worker_of
from otel_rl.recorder.trainer.session import NEVER, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.recorder.journal.records import Finished

logger = log_of("otel_rl")


instead: Callable[[Settings], Unrecorded] | None = None
"""What `otel_rl.testing` opens instead of a session."""


def open_session(settings: Settings) -> Session | Unrecorded:
    """Begin to record; if another process records the run, under another id; otherwise in the temporary directory.

    Raises:
        SettingsError: A setting is invalid; or the run is strict and the machine does not allow what it asks for.
    """
    share_with(settings.share)
    own = settings.redact
    redaction.begin(own.patterns, own.names, os.environ, function_at(own.function) if own.function else None)
    asked, problems = _named_without_secrets(settings), list[str]()
    if instead is not None:
        return instead(asked)
    asked, taken = in_place_of_rerun(asked), None
    while True:
        chosen, least = find_run(asked)
        try:
            session = Session(chosen, least)
        except Exception as error:
            let_pass(error)
            if isinstance(error, SettingsError) and not isinstance(error, UnavailableError):
                raise
            if settings.strict:
                raise error if isinstance(error, SettingsError) else _unavailable(settings, error) from error
            if isinstance(error, HeldError) and is_worker_of(chosen, error):
                asked = as_worker(chosen)
                continue
            problems.append(text_of(error))
            if isinstance(error, HeldError):
                taken = taken or chosen
                another: Settings | None = _another_id(taken, chosen)
            else:
                another = _elsewhere(settings, asked, problems)
            if another is None:
                logger.warning("run %s is not recorded: %s", chosen.id, "; ".join(problems))
                return Unrecorded(chosen)
            asked = another
        else:
            if problems:
                where = f"run {chosen.id} is recorded into {session.directory.path} instead"
                logger.warning("%s; %s; strict=True raises an error", "; ".join(problems), where)
            return session


def identified(settings: Settings) -> Settings:
    """Return the settings with the id that the run of this start has."""
    return find_run(settings).settings


def _named_without_secrets(settings: Settings) -> Settings:
    """Return the settings without secrets in the names of the run; identities get a hash, the same on all ranks."""
    named = {name: getattr(settings, name) for name in ("id", "role", "name", "project")}
    clean = {name: redacted(text) for name, text in named.items()}
    if clean == named:
        return settings
    for name in ("id", "role"):  # they name directories
        if clean[name] != named[name]:
            clean[name] = f"{clean[name].replace(REDACTED, 'redacted')}-{sha256(named[name].encode()).hexdigest()[:16]}"
    changed = ", ".join(name for name in named if clean[name] != named[name])
    logger.warning("a secret was removed from the %s of the run", changed)
    return replace(settings, **clean)


def _another_id(first: Settings, held: Settings) -> Settings:
    """Return the settings with the next id that this rank has not used, so that all ranks agree on it.

    Args:
        first: The settings whose id the others begin with.
        held: The settings of the run that another process records.
    """
    who, plain = label(held.role, held.rank), Settings(**asdict(held))
    for number in count(2):
        another = renamed(plain, f"{first.id}-{number}")
        seen = newest(directories.at(directories.place_of(another)), who)
        if seen is None or not seen.had_own:
            return another
    raise AssertionError("there is always another number")


def _elsewhere(settings: Settings, asked: Settings, problems: list[str]) -> Settings | None:
    """Return the settings with a directory in the temporary directory; `None` if that was tried or is impossible."""
    if asked.dir != settings.dir:
        return None
    try:
        return replace(asked, dir=str(private_directory() / "runs"))
    except OSError as error:
        problems.append(text_of(error))
        return None


def _unavailable(settings: Settings, error: Exception) -> UnavailableError:
    where = (
        f"dir={settings.dir!r}: nothing can be recorded there" if isinstance(error, OSError) else "nothing is recorded"
    )
    return UnavailableError(f"{where}: {text_of(error)}")


class Unrecorded:
    """A session of a run that cannot be recorded: the run refuses and counts everything."""

    attempt = 0
    prometheus: str | None = None
    journal: Sink = NOWHERE
    check_at = NEVER  # there is nothing to check

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directory = RunDirectory(Path(settings.dir), Path(settings.dir), "")  # it may not exist
        self.label = label(settings.role, settings.rank)

    def check(self) -> None:
        """Do nothing: there are no files and no agent."""

    def leave_to_parent(self) -> None:
        """Do nothing: no signal is watched."""

    def for_child(self) -> Unrecorded:
        """Return this session: a forked child records nothing either."""
        return self

    def write_end(self, _end: Finished) -> bool:
        """Write nothing."""
        return False

    def give_up(self) -> None:
        """Do nothing."""

    def close(self, *, at_exit: bool = False) -> None:
        """Do nothing."""

    def wait_until_delivered(self, _timeout: float) -> bool:
        """Return false: nothing was recorded."""
        return False

    def missing(self) -> str:
        """Return why nothing was delivered."""
        return "nothing was recorded"

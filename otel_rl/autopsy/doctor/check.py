"""A check, and its answer: what was found, and how to fix it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from otel_rl.recorder.directory.directory import RunDirectory
    from otel_rl.recorder.settings.settings import Settings

State = Literal["failed", "warning", "ok", "skipped"]
"""The state of a check: recording does not work, it works with a loss, all is well, or there was nothing to look at."""
STATES: tuple[State, ...] = ("failed", "warning", "ok", "skipped")
"""All states, the worst first."""

_LONGEST_FIX = 200
NOT_CHECKED = "could not be checked: "
"""The begin of what is said of a check that broke."""


class Check(msgspec.Struct, frozen=True):
    """The answer of a check."""

    name: str  # its subject
    state: State  # what it means
    what: str  # what was found
    fix: str = ""  # what to do; empty if nothing is to be done


def split(message: str) -> tuple[str, str]:
    """Return what is wrong, and how to fix it: errors of settings have the fix behind a semicolon."""
    what, _, fix = message.partition("; ")
    if len(fix) > _LONGEST_FIX:
        fix = f"{fix[:_LONGEST_FIX]} …"
    return what, wording.capitalized(fix) if fix else "Correct the value, or unset it."


class CheckedMachine(NamedTuple):
    """The machine and the run that checks look at."""

    environ: Mapping[str, str]  # the variables of the environment
    settings: Settings | None  # the settings of the run that would start here; `None` if they are invalid
    directory: Path  # the directory of the runs
    run: RunDirectory | None = None  # the run directory, if one was named


class Subject(NamedTuple):
    """Something that is checked, and how long that may take in seconds."""

    name: str
    look: Callable[[CheckedMachine], Iterable[Check]]
    seconds: float = 5.0


def examine(subjects: Iterable[Subject], machine: CheckedMachine) -> list[Check]:
    """Return the answers of all checks, which run at the same time; the worst come first.

    A check that hangs, such as on a file server, has failed; one that raises was skipped.
    """
    began = time.monotonic()
    running = [(subject, *_started(subject, machine)) for subject in subjects]
    checks: list[Check] = []
    for subject, thread, answers in running:
        thread.join(max(0.0, began + subject.seconds - time.monotonic()))
        checks += list(answers)
        if thread.is_alive():
            what = f"no answer within {wording.seconds(subject.seconds)}"
            checks.append(Check(subject.name, "failed", what, "Look for a file system, a driver or a host that hangs."))
    return sorted(checks, key=lambda check: STATES.index(check.state))


def _started(subject: Subject, machine: CheckedMachine) -> tuple[threading.Thread, list[Check]]:
    answers: list[Check] = []

    def look() -> None:
        try:
            for check in subject.look(machine):
                answers.append(check)
        except SettingsError as error:
            answers.append(Check(subject.name, "failed", *split(str(error))))
        except Exception as error:  # one check must not hide the others
            answers.append(Check(subject.name, "skipped", f"{NOT_CHECKED}{text_of(error)}"))

    thread = threading.Thread(target=look, name=subject.name, daemon=True)
    thread.start()
    return thread, answers

"""A check, and its answer: what was found, and how to fix it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from otel_rl.errors import SettingsError
from otel_rl.errors.texts import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from otel_rl.setup.directory import RunDirectory
    from otel_rl.setup.settings import Settings

State = Literal["failed", "warning", "ok", "skipped"]
"""The state of a check: recording does not work, it works with a loss, all is well, or there was nothing to look at."""
STATES: tuple[State, ...] = ("failed", "warning", "ok", "skipped")
"""All states, the worst first."""

_LONGEST_FIX = 200
NOT_CHECKED = "could not be checked: "
"""The begin of what is said of a check that broke."""


class Check(msgspec.Struct, frozen=True):
    """The answer of a check.

    Attributes:
        name: Its subject.
        state: What it means.
        what: What was found.
        fix: What to do; empty if nothing is to be done.
    """

    name: str
    state: State
    what: str
    fix: str = ""


def split(message: str) -> tuple[str, str]:
    """Return what is wrong, and how to fix it: errors of settings have the fix behind a semicolon."""
    what, _, fix = message.partition("; ")
    if len(fix) > _LONGEST_FIX:
        fix = f"{fix[:_LONGEST_FIX]} …"
    return what, f"{fix[:1].upper()}{fix[1:]}" if fix else "Correct the value, or unset it."


class Machine(NamedTuple):
    """The machine and the run that checks look at.

    Attributes:
        environ: The variables of the environment.
        settings: The settings of the run that would start here; `None` if they are invalid.
        directory: The directory of the runs.
        run: The run directory, if one was named.
    """

    environ: Mapping[str, str]
    settings: Settings | None
    directory: Path
    run: RunDirectory | None = None


class Subject(NamedTuple):
    """Something that is checked, and how long that may take in seconds."""

    name: str
    look: Callable[[Machine], Iterable[Check]]
    seconds: float = 5.0


def examine(subjects: Iterable[Subject], machine: Machine) -> list[Check]:
    """Return the answers of all checks, which run at the same time; the worst come first.

    A check that hangs, such as on a file server, has failed; one that raises was skipped.
    """
    began = time.monotonic()
    running = [(subject, *_started(subject, machine)) for subject in subjects]
    found: list[Check] = []
    for subject, thread, answers in running:
        thread.join(max(0.0, began + subject.seconds - time.monotonic()))
        found += list(answers)
        if thread.is_alive():
            what = f"no answer within {subject.seconds:g} s"
            found.append(Check(subject.name, "failed", what, "Look for a file system, a driver or a host that hangs."))
    return sorted(found, key=lambda one: STATES.index(one.state))


def _started(subject: Subject, machine: Machine) -> tuple[threading.Thread, list[Check]]:
    answers: list[Check] = []

    def look() -> None:
        try:
            for one in subject.look(machine):
                answers.append(one)
        except SettingsError as error:
            answers.append(Check(subject.name, "failed", *split(str(error))))
        except Exception as error:  # one check must not hide the others
            answers.append(Check(subject.name, "skipped", f"{NOT_CHECKED}{text_of(error)}"))

    thread = threading.Thread(target=look, name=subject.name, daemon=True)
    thread.start()
    return thread, answers

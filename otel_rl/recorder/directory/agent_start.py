"""Start the agent of this machine, and wait for its status: its address, and how far it has delivered."""

from __future__ import annotations

import contextlib
import json
import os
import secrets as random
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.directory import parts
from otel_rl.recorder.errors import SettingsError, UnavailableError, UnwritableError
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files import programs
from otel_rl.recorder.files.atomic_files import read_json
from otel_rl.recorder.files.locks import LONG_S, Lock, is_held
from otel_rl.recorder.files.modes import open_file
from otel_rl.recorder.files.own_files import ForeignError
from otel_rl.recorder.journal.segments import Position
from otel_rl.recorder.settings.settings import (
    CAPTURE_VARIABLE,
    INSTRUMENT_VARIABLE,
    MARK_VARIABLE,
    SECRET_OPTIONS_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.directory.directory import RunDirectory
    from otel_rl.recorder.files.programs import Program

logger = log_of("otel_rl")
_POLL_S = 0.01
_SUPERVISOR = Path(__file__).parents[1] / "agent" / "__main__.py"
_NO_SECRETS: Mapping[str, object] = MappingProxyType({})
_children: list[Program] = []  # kept, so that a running agent causes no resource warning

MACHINE, DIRECTORY = "machine", "directory"
_ERRORS = {MACHINE: UnavailableError, DIRECTORY: UnwritableError}


class NoAgentError(UnavailableError):
    """This process has no way to start an agent, now or later."""


class AgentStatus(msgspec.Struct, frozen=True):
    """The status of an agent, as its status file has it; positions are places in the outbox, except those given up."""

    pid: int = 0
    state: str = "starting"  # or "ready", "failed" (see `error`), "ended"
    prometheus: str | None = None  # URL of its metrics endpoint
    error: str = ""  # the error that kept it from starting
    cause: str = ""  # `MACHINE` or `DIRECTORY` if that does not allow it to start; empty if the settings are wrong
    warnings: list[str] = []  # deviations from the settings that the machine made necessary
    unreachable: str = ""  # why other machines cannot send to this head agent; empty if they can
    finished: dict[str, Position] = {}  # position of its last item, by journal that was read to its end
    given_up: dict[str, Position] = {}  # position in the journal, by journal whose process is considered dead
    delivered: dict[str, Position] = {}  # position, by exporter
    failures: dict[str, int] = {}  # number of failures, by exporter
    last_error: dict[str, str] = {}  # text of the last error, by exporter
    lost: dict[str, int] = {}  # number of lost records, items, or bytes of a journal, by reason
    waiting: dict[str, int] = {}  # number of undelivered items, by exporter that has ended


def read_status(directory: RunDirectory) -> AgentStatus:
    """Return the last status of the agent; an empty one if there is none."""
    return read_json(directory.status, AgentStatus) or AgentStatus()


_FIXES = {
    **dict.fromkeys(("retention", "outbox_retention"), "raise journal_limit, or repair the exporter"),
    **dict.fromkeys(("torn_bytes", "undecodable"), "check the disk"),
    **dict.fromkeys(("journals_missing", "outbox_damaged"), "exclude local/ from cleaners"),
    "refused_by_exporter": "repair what the agent's log names",
    "lost_between_machines": "give the Collector a queue on disk",
    "open_spans": "too many were open at once; end them: use `with`",
    "name_limit": "leave ids out of names of metrics, or raise rows.limit",
}
"""The fix for each reason of losses; no command brings them back."""


def lost(status: AgentStatus) -> list[str]:
    """Return what was lost, by reason, with the fix."""
    fixes = {reason: f" ({_FIXES[reason]})" for reason in status.lost.keys() & _FIXES.keys()}
    return [f"{count} {reason} lost{fixes.get(reason, '')}" for reason, count in status.lost.items()]


def incomplete(status: AgentStatus) -> str:
    """Return the status of an agent that has ended: what was lost, and what waits for the next agent."""
    reasons = lost(status)
    for name, count in status.waiting.items():
        reasons.append(f"{count} item(s) not delivered to {name} ({status.last_error.get(name) or 'no error so far'})")
    return "; ".join(reasons) or "not everything was delivered"


def note_delivered(directory: RunDirectory) -> None:
    """Note in the run directory that all of a part was delivered, since the part may be removed."""
    part = parts.read(directory.path, directory.host)
    with contextlib.suppress(OSError):
        if part is not None and part.place == directory.local:
            parts.note(directory.path, part, is_delivered=True)


def agent_is_alive(directory: RunDirectory) -> bool:
    """Return whether an agent holds its lock; the kernel releases it when the process ends, however that happens."""
    return is_held(directory.agent_lock)


def _environment(secrets: Mapping[str, object]) -> dict[str, str]:
    """Return the agent's environment: with its mark and the secret options, without variables for trainers."""
    # With the variables of `otel-rl run`, the trackers in the agent would be captured, and recorded once more.
    kept = {name: value for name, value in os.environ.items() if name not in (INSTRUMENT_VARIABLE, CAPTURE_VARIABLE)}
    passed = {SECRET_OPTIONS_VARIABLE: json.dumps(secrets)} if secrets else {}
    return kept | {MARK_VARIABLE: random.token_hex(8)} | passed


def _spawn(directory: RunDirectory, secrets: Mapping[str, object], *, show_output: bool) -> Program:
    """Start a supervisor, which starts the agent."""
    if not _SUPERVISOR.is_file():
        raise NoAgentError(f"there is no agent: {_SUPERVISOR} is not a file, as inside of a frozen application")
    with open(directory.agent_log, "ab", opener=open_file) as log:
        try:
            process = programs.start_python(
                str(_SUPERVISOR),
                *map(str, directory),
                environment=_environment(secrets),
                output=None if show_output else log,
                errors=log,
                is_detached=True,
            )
        except programs.NoPythonError as error:
            raise NoAgentError(f"there is no agent: {error}") from error
        except OSError as error:
            raise UnavailableError(f"the agent cannot be started: {error}") from error
    # `poll` takes the exit status: supervisors that ended would stay zombies of a trainer that records many runs.
    _children[:] = [*(child for child in _children if child.poll() is None), process]
    return process


def _check(directory: RunDirectory) -> None:
    try:
        parts.check(directory.path, directory.host)
    except ForeignError as error:
        raise UnavailableError(f"the agent cannot be started: {error}") from error


def is_looked_after(directory: RunDirectory) -> bool:
    """Return whether an agent runs, or a supervisor that restarts it; true if this process has no descriptor to see."""
    try:
        return agent_is_alive(directory) or is_held(directory.supervisor_lock)
    except OSError:
        return True


def restart_agent(directory: RunDirectory, secrets: Mapping[str, object] = _NO_SECRETS, *, show_output: bool) -> bool:
    """Start the agent of this machine if it has no supervisor; return whether it was started, without waiting.

    `secrets` are the secret options of its exporters, by path.

    Raises:
        OSError: It cannot be started.
    """
    try:
        # No patience, since this is the trainer's thread: whoever holds the lock starts an agent
        # (faults/test_supervision.py).
        lock = Lock(directory.start_lock, patience=0)
    except BlockingIOError:
        return False  # another rank does it
    with lock:
        # Under the lock: another rank may have started an agent since the caller looked, and two would deliver the same
        # rows.
        if is_looked_after(directory):
            return False
        _check(directory)
        _spawn(directory, secrets, show_output=show_output)
    return True


def ensure_agent(
    directory: RunDirectory,
    secrets: Mapping[str, object] = _NO_SECRETS,
    *,
    show_output: bool,
    timeout: float = 60.0,
) -> AgentStatus:
    """Start the agent of this machine unless it runs; return its status when it is ready.

    `secrets` are the secret options of its exporters, by path.

    Raises:
        UnavailableError: The machine does not allow it to start; the message is the agent's own.
        SettingsError: It could not start for another reason.
    """
    _check(directory)  # before the lock, which another user could hold
    try:
        lock = Lock(directory.start_lock, patience=LONG_S)
    except BlockingIOError as error:
        raise UnavailableError(f"the agent could not be started: {error.filename}: {error.strerror}") from error
    with lock:
        if agent_is_alive(directory):
            return read_status(directory)
        # The status of the agent before says `ended` or `failed`: the loop below would take it for that of the new one.
        directory.status.unlink(missing_ok=True)
        process = _spawn(directory, secrets, show_output=show_output)
        deadline = time.monotonic() + timeout
        while (status := read_status(directory)).state == "starting":
            # An agent of another supervisor may run, so the end of this one alone means nothing.
            ended = process.poll() is not None and not agent_is_alive(directory)
            # Read again: the agent may have written why it failed between the look at the status and the one at its
            # process.
            if ended and read_status(directory).state == "starting":
                raise UnavailableError(f"the agent ended with code {process.returncode}; see {directory.agent_log}")
            if time.monotonic() > deadline:
                raise UnavailableError(f"the agent was not ready after {timeout:.0f} s; see {directory.agent_log}")
            time.sleep(_POLL_S)
    if status.state == "failed":
        raise _ERRORS.get(status.cause, SettingsError)(status.error)
    for warning in status.warnings:
        logger.warning("%s", warning)
    return status


def end_agents(timeout: float) -> None:
    """Stop the agents that this process started, and wait for them; undelivered items stay on disk."""
    for child in _children:
        child.terminate()
    deadline = time.monotonic() + timeout
    for child in _children:
        with contextlib.suppress(programs.TooLate):
            child.wait(max(0.0, deadline - time.monotonic()))


def wait_until_delivered(directory: RunDirectory, journal: str, end: Position, deadline: float) -> Position | None:
    """Wait until every exporter has delivered `journal` up to `end`; return the position of `end` in the outbox.

    `None` says that it did not come true before the deadline of the monotonic clock, or that no agent is left to do it.
    """
    while True:
        is_at_work = is_looked_after(directory)  # before the status, which an agent writes before it ends
        status = read_status(directory)
        last = status.finished.get(journal)
        is_read = status.given_up.get(journal, end) >= end  # otherwise it was considered dead, and continued
        if last is not None and is_read and all(reached >= last for reached in status.delivered.values()):
            return last
        if not is_at_work or time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_S)

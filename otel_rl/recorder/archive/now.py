"""The present state of a run: `now.json` in the archive's folder of a machine, replaced once a second.

It has what a viewer shows first: open steps and phases, the last steps with their metrics, gauges, and how far the
exporters are. It stays as it is when the run ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from otel_rl.export import DeathCause, Outcome, WaitCause
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.facts.own_time import closed, largest_first
from otel_rl.recorder.facts.signs import KnownProcess, Stalled
from otel_rl.recorder.facts.step_time import RECENT_STEPS, StepRow, left, of_machines, recent, times
from otel_rl.recorder.files.atomic_files import read_shown_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FILE = "now.json"


class PhaseNow(msgspec.Struct, frozen=True):
    """A phase that is open, and when it started in Unix nanoseconds; the innermost one comes last."""

    name: str
    started_unix_nano: int
    part: str = ""


WaitKind = Literal["ticket", "request", "tool", "group", "collective", "sync", "queue"]
"""The kind of a wait: for what a span names itself, a request, a part of a trajectory outside of the run, a
trajectory or its group, other ranks, a version of the weights, or any trajectory."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a process waits for."""

    waiter: str  # the process that waits, such as `rank 0` or `rollout 5`
    kind: WaitKind  # what kind of thing it waits for
    subject: str  # its name, such as that of a phase, a tool or a group
    group: str = ""  # the group of the trajectory in which it waits; empty outside of any
    doing: str = ""  # the innermost thing that the debtor does for it, such as `tool pytest`; empty if unknown
    debtors: tuple[str, ...] = ()  # who owes it: processes, and addresses of servers; empty if that is unknown
    is_any: bool = False  # if true, one of the debtors is enough; otherwise all of them owe it
    since_unix_nano: int  # since when
    step: int | None = None  # the step in which it waits; `None` outside of any
    waiters: int = 1  # how many processes wait for the same
    others: tuple[str, ...] = ()  # the processes that wait for the same besides this one, at most 255
    groups: int = 0
    """For a queue, the groups of trajectories that were begun since the step began, those that ended too."""
    cause: WaitCause = ""  # why it can never end; empty if it can
    culprits: tuple[str, ...] = ()
    """The culprits: who is dead or has ended, or the processes of a circle in their order."""


class MadeNow(msgspec.Struct, frozen=True, kw_only=True):
    """The trajectories that a process has made in this attempt."""

    role: str  # its role; empty for a trainer rank
    rank: int  # its rank
    ended: int  # number of those that have ended, the failed ones included
    failed: int = 0  # how many of the last ones failed, without one between them that did not
    open: int = 0  # number of those that are open
    last: str = ""  # the group of the one that ended last, such as `prompt 7`
    last_unix_nano: int = 0  # when that ended
    failure: str = ""  # the group of the one that failed last; empty if none failed
    failure_unix_nano: int = 0  # when that ended
    error: str = ""  # the error that ended it


class PhaseTime(msgspec.Struct, frozen=True, array_like=True):
    """A phase, its category, and its time in seconds; time in no phase has no name.

    The category is one of `otel_rl.semconv.phase_categories`.
    """

    name: str
    category: str
    seconds: float


class ProcessNow(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the last attempt."""

    attempt: int  # its attempt
    role: str  # its role; empty for a trainer rank
    rank: int  # its rank
    host: str  # name of its machine
    pid: int  # its process id
    step: int | None  # the step that it is in; `None` outside of any
    step_started_unix_nano: int | None  # when it began that step
    phases: tuple[PhaseNow, ...]  # its open phases
    last_unix_nano: int  # when it recorded something last
    outcome: Outcome | None  # how it ended; `None` while it runs
    error: str = ""  # the error that ended it; empty if there was none
    last: tuple[PhaseTime, ...] = ()  # where the time of its last step went, the longest phase first
    usual_s: float | None = None  # median seconds of its phase, or of a step that it only logs; `None` if unknown
    dropped: dict[str, int] = {}  # the trajectories that it dropped by reason, since it began a step or trained on some
    dropped_unix_nano: int = 0  # when it dropped some last
    ended_unix_nano: int | None = None  # when it ended; `None` while it runs
    exit_code: int = 0  # as in `otel_rl.export.Ended`
    cause: DeathCause = ""  # why it ended without a report; empty if it is unknown, or if it reported its end
    ended_step: int | None = None  # the step in which it ended badly; `None` outside of any
    ended_phase: str = ""  # the phase in which it ended badly, the innermost one; empty outside of any
    down_order: int = 0  # its place among the processes that ended badly, from 1; 0 if it did not


class Curve(msgspec.Struct, frozen=True):
    """The last points of a metric: steps, and values; `None` is a value that is not finite."""

    name: str
    points: tuple[tuple[int, float | None], ...]


class EventNow(msgspec.Struct, frozen=True):
    """An event: when, its name, its attributes as a text, and whose it is."""

    time_unix_nano: int
    name: str
    text: str = ""
    step: int | None = None
    rank: int | None = None
    role: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is, from the last steps that its agent has seen."""

    attempt: int = 0  # the last attempt that has a step
    first_step: int | None = None  # the first step of the run
    last_step: int | None = None  # the last step of which there is a row
    steps: int = 0  # number of steps in the valid history
    total_steps: int | None = None  # number of steps that the parameters announce; `None` if they do not
    resumed_at: tuple[int, ...] = ()  # the first step of each attempt after the first one
    recent_step_seconds: float | None = None  # median time of the last 20 steps; `None` if it is unknown
    recent_shares: tuple[PhaseTime, ...] = ()
    """Where the time of the last 20 steps went, over all ranks, the longest phase first."""
    curves: tuple[Curve, ...] = ()  # the main metrics, under the framework's own names, and `time/step`
    events: tuple[EventNow, ...] = ()  # the last events, the newest last
    outcome: Outcome | None = None  # how the last attempt ended; `None` while it runs
    error: str = ""  # the error that ended it

    @property
    def seconds_left(self) -> float | None:
        """The time in seconds that the steps to come take; `None` if it is unknown."""
        return left(self.last_step, self.total_steps, self.recent_step_seconds)


class DeviceNow(msgspec.Struct, frozen=True, kw_only=True):
    """The last measurements of a GPU, or of a host: shares of 1, bytes, watts and degrees; `None` if unknown."""

    name: str
    utilization: float | None = None
    memory: float | None = None
    memory_limit: float | None = None
    watts: float | None = None
    celsius: float | None = None


class ExporterNow(msgspec.Struct, frozen=True):
    """How far an exporter is."""

    name: str  # its name
    accepted: int  # number of items that it has accepted since the agent started
    waiting: int  # number of items that wait for it
    failures: int = 0  # number of its failures
    last_error: str = ""  # the last one
    delivered: dict[str, int] = {}  # number of items that it has for good, by kind, since the run began


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run, as the agent of a machine sees it."""

    time_unix_nano: int  # when it was written; an agent that lives writes it at least every 10 s
    id: str  # identity of the run
    project: str  # its project
    name: str  # its display name
    pid: int  # process id of the agent
    state: str  # "ready" while the agent works, "ended" afterwards
    processes: list[ProcessNow]  # the processes of the last attempt
    open_steps: int = 0  # number of steps that wait for a process, and have no row yet
    exporters: list[ExporterNow]  # the exporters
    lost: dict[str, int] = {}  # number of losses, by reason
    warnings: list[str] = []  # deviations from the settings that the machine made necessary
    metrics: str | None = None  # URL of the metrics endpoint
    started_unix_nano: int | None = None  # when the first process of the run started
    progress: Progress = Progress()  # how far it is
    devices: tuple[DeviceNow, ...] = ()  # the GPUs of this machine, and its host, which comes last
    waits: tuple[Wait, ...] = ()  # what processes wait for: what can never end comes first, then the oldest
    stalled: tuple[Stalled, ...] = ()  # the processes that do not go on, at most 64
    made: tuple[MadeNow, ...] = ()  # the trajectories that processes have made, at most 256 processes
    analyses: dict[str, Any] = {}  # what other analyses show
    last_rows: tuple[StepRow, ...] = ()  # the rows that `progress.recent_step_seconds` is of, for the next agent
    before: KnownProcess | None = None  # the first process that ended badly in an attempt before the last one

    @property
    def has_everything(self) -> bool:
        """Whether the archive has all that the machine recorded: its processes and its agent have ended."""
        waits = self.open_steps or any(exporter.waiting for exporter in self.exporters if exporter.name == "archive")
        return not waits and self.state == "ended" and all(process.outcome is not None for process in self.processes)


def place_of(run: Path, machine: str) -> Path:
    """Return the path of the file that the agent of a machine writes."""
    return run / ARCHIVE / machine / _FILE


def machines_of(run: Path) -> list[str]:
    """Return the folders of the machines that have written the file."""
    return sorted(path.parent.name for path in (run / ARCHIVE).glob(f"*/{_FILE}"))


def read_now(run: Path) -> list[Now]:
    """Return the states that the agents of a run wrote last, the newest first; without a head, each machine has one."""
    states = (read_shown_json(path, Now, run) for path in (run / ARCHIVE).glob(f"*/{_FILE}"))
    return sorted((now for now in states if now is not None), key=lambda now: -now.time_unix_nano)


def progress_of(nows: Sequence[Now]) -> Progress:
    """Return the progress of the machine that is farthest, with the time of all machines in their last common steps.

    Hyperparameters of any machine count.
    """
    progress = max((now.progress for now in nows), key=lambda progress: (progress.attempt, progress.steps))
    total = max(now.progress.total_steps or 0 for now in nows) or None
    recording = [now for now in nows if now.last_rows and now.progress.attempt == progress.attempt]
    # A machine on which all processes have died has no further steps in common with those that go on.
    recording = [now for now in recording if any(one.outcome is None for one in now.processes)] or recording
    if len(recording) > 1 and (rows := of_machines(now.last_rows for now in recording)):
        shares = _shares_of_machines(recording, rows)
        progress = msgspec.structs.replace(progress, recent_step_seconds=recent(rows), recent_shares=shares)
    return msgspec.structs.replace(progress, total_steps=total)


def _shares_of_machines(nows: Sequence[Now], rows: Sequence[StepRow]) -> tuple[PhaseTime, ...]:
    """Return where the time of several machines went; a process that is done with a step early is in no phase then."""
    phases = [time for now in nows for time in now.progress.recent_shares]
    by_machine = ((sum(time.seconds for time in now.progress.recent_shares), now.last_rows) for now in nows)
    processes = sum(spent / seconds for spent, of_one in by_machine if (seconds := _seconds(of_one)))
    spent = closed(((time.name, time.seconds) for time in phases if time.name), processes * _seconds(rows))
    categories = {time.name: time.category for time in phases} | {"": "none"}
    return tuple(PhaseTime(name, categories[name], seconds) for name, seconds in largest_first(spent))


def _seconds(rows: Sequence[StepRow]) -> float:
    """Return the time of the last 20 steps."""
    return sum(seconds for _, seconds in times(rows)[-RECENT_STEPS:])

"""The present state of a run: `now.json` in the archive's folder of a machine, replaced once a second.

It has what a viewer shows first: open steps and phases, the last steps with their metrics, gauges, and how far the
exporters are. It stays as it is when the run ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.export import Outcome
from otel_rl.journal.atomic_files import read_shown_json
from otel_rl.setup.parts import ARCHIVE

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "now.json"


class OpenPhase(msgspec.Struct, frozen=True):
    """A phase that is open, and when it started in Unix nanoseconds; the innermost one comes last."""

    name: str
    started_unix_nano: int
    part: str = ""


WaitKind = Literal["ticket", "request", "tool", "group", "collective", "sync", "queue"]
"""The kind of a wait: for what a span names itself, a request, a part of a trajectory outside of the run, a
trajectory or its group, other ranks, a version of the weights, or any trajectory."""
Cause = Literal["", "dead", "ended", "circle"]
"""Why a wait can never end: who owes it is dead, has ended, or waits in turn; empty if it can."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a process waits for.

    Attributes:
        waiter: The process that waits, such as `rank 0` or `rollout 5`.
        kind: What kind of thing it waits for.
        subject: Its name, such as that of a phase, a tool or a group.
        group: The group of the trajectory in which it waits; empty outside of any.
        doing: The innermost thing that the debtor does for it, such as `tool pytest`; empty if unknown.
        debtors: Who owes it: processes, and addresses of servers; empty if that is unknown.
        is_any: If true, one of the debtors is enough; otherwise all of them owe it.
        since_unix_nano: Since when.
        step: The step in which it waits; `None` outside of any.
        waiters: How many processes wait for the same.
        groups: For a queue, the groups of trajectories that were begun since the step began, those that ended too.
        cause: Why it can never end; empty if it can.
        culprits: Who that is due to: who is dead or has ended, or the processes of a circle in their order.
    """

    waiter: str
    kind: WaitKind
    subject: str
    group: str = ""
    doing: str = ""
    debtors: tuple[str, ...] = ()
    is_any: bool = False
    since_unix_nano: int
    step: int | None = None
    waiters: int = 1
    groups: int = 0
    cause: Cause = ""
    culprits: tuple[str, ...] = ()


class PhaseTime(msgspec.Struct, frozen=True, array_like=True):
    """A phase, its category, and its time in seconds; time in no phase has no name.

    The category is one of `otel_rl.semconv.phase_categories`.
    """

    name: str
    category: str
    seconds: float


class ProcessNow(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the last attempt.

    Attributes:
        attempt: Its attempt.
        role: Its role; empty for a trainer rank.
        rank: Its rank.
        host: Name of its machine.
        pid: Its process id.
        step: The step that it is in; `None` outside of any.
        step_started_unix_nano: When it began that step.
        phases: Its open phases.
        last_unix_nano: When it recorded something last.
        outcome: How it ended; `None` while it runs.
        error: The error that ended it; empty if there was none.
        last: Where the time of its last step went, the longest phase first.
        dropped: The trajectories that it dropped by reason, since it began a step or trained on some.
        dropped_unix_nano: When it dropped some last.
    """

    attempt: int
    role: str
    rank: int
    host: str
    pid: int
    step: int | None
    step_started_unix_nano: int | None
    phases: tuple[OpenPhase, ...]
    last_unix_nano: int
    outcome: Outcome | None
    error: str = ""
    last: tuple[PhaseTime, ...] = ()
    dropped: dict[str, int] = {}
    dropped_unix_nano: int = 0


class Stalled(msgspec.Struct, frozen=True, kw_only=True):
    """A process that does not go on.

    Attributes:
        kind: "slow" if it works, "silent" if nothing arrives from its machine, "hung" otherwise.
        scope: "job" if no rank that the agent follows goes on, "process" otherwise.
        role: Its role; empty for a trainer rank.
        rank: Its rank.
        host: Name of its machine.
        phase: The phase that it is in; empty outside of any.
        part: The part of the phase.
        since_unix_nano: When it came there.
        usual_s: Median time of the phase; `None` if it never ended before.
        deadline_s: Time after which it counts as stalled.
        evidence: What it does.
        silent_since_unix_nano: When its machine sent something last, if it is silent; 0 otherwise.
    """

    kind: Literal["hung", "slow", "silent"]
    scope: Literal["process", "job"]
    role: str = ""
    rank: int
    host: str
    phase: str = ""
    part: str = ""
    since_unix_nano: int
    usual_s: float | None = None
    deadline_s: float
    evidence: str = ""
    silent_since_unix_nano: int = 0


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
    """How far a run is, from the last steps that its agent has seen.

    Attributes:
        attempt: The last attempt that has a step.
        first_step: The first step of the run.
        last_step: The last step of which there is a row.
        steps: Number of steps in the valid history.
        total_steps: Number of steps that the parameters announce; `None` if they do not.
        resumed_at: The first step of each attempt after the first one.
        step_seconds: The usual time of the last steps.
        step_seconds_before: The usual time of the steps before these.
        shares: Where the time of the last steps went, over all ranks, the longest phase first.
        curves: The main metrics, under the framework's own names, and `time/step`.
        events: The last events, the newest last.
        outcome: How the last attempt ended; `None` while it runs.
        error: The error that ended it.
    """

    attempt: int = 0
    first_step: int | None = None
    last_step: int | None = None
    steps: int = 0
    total_steps: int | None = None
    resumed_at: tuple[int, ...] = ()
    step_seconds: float | None = None
    step_seconds_before: float | None = None
    shares: tuple[PhaseTime, ...] = ()
    curves: tuple[Curve, ...] = ()
    events: tuple[EventNow, ...] = ()
    outcome: Outcome | None = None
    error: str = ""


class DeviceNow(msgspec.Struct, frozen=True, kw_only=True):
    """The last measurements of a GPU, or of a host: shares of 1, bytes, watts and degrees; `None` if unknown."""

    name: str
    utilization: float | None = None
    memory: float | None = None
    memory_limit: float | None = None
    watts: float | None = None
    celsius: float | None = None


class ExporterNow(msgspec.Struct, frozen=True):
    """How far an exporter is.

    Attributes:
        name: Its name.
        accepted: Number of items that it has accepted since the agent started.
        waiting: Number of items that wait for it.
        failures: Number of its failures.
        last_error: The last one.
        delivered: Number of items that it has for good, by kind, since the run began.
    """

    name: str
    accepted: int
    waiting: int
    failures: int = 0
    last_error: str = ""
    delivered: dict[str, int] = {}


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run, as the agent of a machine sees it.

    Attributes:
        time_unix_nano: When it was written; an agent that lives writes it at least every 10 s.
        id: Identity of the run.
        project: Its project.
        name: Its display name.
        pid: Process id of the agent.
        state: "ready" while the agent works, "ended" afterwards.
        processes: The processes of the last attempt.
        open_steps: Number of steps that wait for a process, and have no row yet.
        exporters: The exporters.
        lost: Number of losses, by reason.
        warnings: Deviations from the settings that the machine made necessary.
        metrics: URL of the metrics endpoint.
        started_unix_nano: When the first process of the run started.
        progress: How far it is.
        devices: The GPUs of this machine, and its host, which comes last.
        waits: What processes wait for: what can never end comes first, then the oldest.
        stalled: The processes that do not go on, at most 64.
    """

    time_unix_nano: int
    id: str
    project: str
    name: str
    pid: int
    state: str
    processes: list[ProcessNow]
    open_steps: int = 0
    exporters: list[ExporterNow]
    lost: dict[str, int] = {}
    warnings: list[str] = []
    metrics: str | None = None
    started_unix_nano: int | None = None
    progress: Progress = Progress()
    devices: tuple[DeviceNow, ...] = ()
    waits: tuple[Wait, ...] = ()
    stalled: tuple[Stalled, ...] = ()

    @property
    def has_everything(self) -> bool:
        """Whether the archive has all that the machine recorded: its processes and its agent have ended."""
        waits = self.open_steps or any(one.waiting for one in self.exporters if one.name == "archive")
        return not waits and self.state == "ended" and all(one.outcome is not None for one in self.processes)


def place_of(run: Path, machine: str) -> Path:
    """Return the path of the file that the agent of a machine writes."""
    return run / ARCHIVE / machine / _FILE


def machines_of(run: Path) -> list[str]:
    """Return the folders of the machines that have written the file."""
    return sorted(path.parent.name for path in (run / ARCHIVE).glob(f"*/{_FILE}"))


def read_now(run: Path) -> list[Now]:
    """Return the states that the agents of a run wrote last, the newest first; without a head, each machine has one."""
    found = (read_shown_json(path, Now) for path in (run / ARCHIVE).glob(f"*/{_FILE}"))
    return sorted((one for one in found if one is not None), key=lambda one: -one.time_unix_nano)

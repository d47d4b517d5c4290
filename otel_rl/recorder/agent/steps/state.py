"""The state of the reducer: plain data, saved in the outbox together with the items that were made from it."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from otel_rl import semconv
from otel_rl.export import DeathCause, Ended, Outcome
from otel_rl.recorder.agent.steps.contribution import Contribution
from otel_rl.recorder.agent.steps.step_set import StepSet
from otel_rl.recorder.agent.steps.window import Window
from otel_rl.recorder.facts.own_time import ProcessTime
from otel_rl.recorder.facts.processes import process_name
from otel_rl.recorder.journal.claim import process_in
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import (
    UNKNOWN,
    DeviceMemory,
    DeviceSeen,
    Finished,
    Record,
    SpanStarted,
    Started,
    Wrote,
)
from otel_rl.recorder.journal.segments import Position

_REMOTE = "@"
_MOST_LATE_STEPS = 256
ROLLOUTS = (semconv.SPAN_ROLLOUT, semconv.SPAN_TRAJECTORY)
"""Roots of traces that wait for a step."""


def of_machine(journal: str, host: str) -> str:
    """Return the local name of a journal of another machine."""
    return f"{journal}{_REMOTE}{host}"


def is_remote(journal: str) -> bool:
    """Return whether a journal, by its name, is of another machine, whose agent shows the process."""
    return _REMOTE in journal


def machine_of(journal: str) -> str:
    """Return the machine of a journal by its name; empty for this machine."""
    return journal.partition(_REMOTE)[2]


def stand_in(run_id: str, journal: str, first: Record) -> Started:
    """Return a first record for a journal whose own is damaged, as far as the journal's name describes it.

    Names are such as `rank3.attempt1.5f0c7a91d2e4b863`. `first` is the first record that is intact.

    Raises:
        ValueError: The name has no valid rank or attempt.
    """
    who, _, rest = journal.partition(_REMOTE)[0].rpartition(".attempt")
    attempt = rest.partition(".")[0]
    role, rank = process_in(who)
    started = Started(
        run_id=run_id,
        attempt=int(attempt) if attempt.isdecimal() else 0,
        rank=rank,
        world_size=1,
        local_world_size=1,
        role=role,
        pid=0,
        host=machine_of(journal),
        page_size=4096,
        time=getattr(first, "time", 0),
    )
    try:
        return msgspec.convert([Started.__struct_config__.tag, *msgspec.structs.astuple(started)], Started)
    except msgspec.ValidationError as error:
        raise ValueError(f"{journal}: {error}") from error


def rank_and_role(process: Started) -> dict[str, str | int]:
    """Return the attributes that identify a process: its rank, and its role if it has one."""
    return {semconv.RANK: process.rank, **({semconv.ROLE: process.role} if process.role else {})}


class OpenPhase(msgspec.Struct):
    """A phase that is open, or a part of one.

    `parts` are those of its parts that have ended that matter for its memory: the first one, and those with a place.
    `peaks` are the highest bytes since it began, allocated and reserved, by device.
    """

    name: str
    peaks: dict[int, tuple[int, int]] = {}
    parts: list[str] = []


class Timed(msgspec.Struct, frozen=True):
    """A phase whose time on the device is not known yet: what it is, and its seconds on the host."""

    phase: str
    part: str
    seconds: float


class Journal(msgspec.Struct):
    """The state of one process."""

    started: Started  # its first record, with the attempt that it belongs to
    recorded_attempt: int = 0  # the attempt that it recorded itself: see `attempts`
    spans: dict[int, SpanStarted] = {}  # its open spans, by span id
    step: int = -1  # the step that it is in, -1 outside of any
    began_step_at: int = 0  # when it began that step
    position: int = -1
    """The step that it works on or worked on last; -1 before the first one. A process that marks steps moves when it
    begins one, another process when it logs for one.
    """
    has_moved: bool = False  # if true, its position has changed since its first step
    takes_part: bool = False  # if true, it has begun a step or logged
    uses_steps: bool = False  # if true, it marks steps, and does not only name them in `log`
    over: bool = False  # if true, it has ended
    lost: bool = False  # if true, it died without a final record
    outcome: Outcome = "finished"  # how it ended
    error: str = ""  # the error that ended it; empty if it finished
    exit_code: int = 0  # as in `otel_rl.export.Ended`
    ended_at: int = 0  # when it ended; for a lost process, when it was last known to be alive
    order: int = 0  # its position among the processes that ended badly, from 1; 0 if it did not
    cause: DeathCause = ""  # why it ended without a report; empty if it is unknown, or if it reported its end
    ended_step: int | None = None  # the step in which it ended badly; `None` outside of any
    ended_phase: str = ""  # the phase in which it ended badly; empty outside of any
    failed_phase: str = ""  # the innermost phase that an exception left last; empty if the process went on
    pending: Lost | Finished | None = None  # its end, until it is known whether it was stopped because the run ended
    pending_since: int = 0  # when that came, on the clock of the agent
    failed_in: int = -1  # the step that it left with an exception; -1 if it continued
    last_time: int = 0  # time of its last record
    step_ended_at: int = 0  # when it ended a step last
    resident: int = 0  # its resident memory at the last boundary, in bytes
    virtual: int = 0  # its virtual memory then
    refusals: dict[str, int] = {}  # counts of refused calls, by reason
    phases: dict[int, OpenPhase] = {}
    """Its open phases and parts of phases by span id, in the order in which they began."""
    time: ProcessTime = msgspec.field(default_factory=ProcessTime)  # its time, shared out among its phases
    devices: dict[int, DeviceSeen] = {}
    on_devices: dict[int, DeviceMemory] = {}  # the memory of its devices at the last boundary
    highest: dict[int, int] = {}  # the most bytes reserved on them in the open step
    timed: dict[int, Timed] = {}  # ended phases whose time on the device is not known yet, by span id
    awaited: dict[int, int] = {}  # the number of values that devices still have to deliver, by step
    exported: tuple[int, ...] | None = None
    """Its attempt, number of devices, end and order when it was last exported as a `Process`."""
    samples: bool = False  # if true, it has sampled trajectories
    generates: bool = False  # if true, it is a process with a role, and has been in a phase that makes rollouts
    version: int = UNKNOWN  # the newest version of the policy that it has sampled with; -1 if unknown
    left: list[SpanStarted] = []  # the last spans that it had open when it died
    dropped: dict[str, int] = {}  # the trajectories that it dropped by reason, since it began a step or trained on some
    dropped_at: int = 0  # when it dropped some last
    printed: int = 0  # the number of lines that it printed

    @property
    def phase_now(self) -> str:
        """The phase that it is in, the innermost of several; empty outside of any."""
        return next((phase.name for phase in reversed(self.phases.values())), "")

    @property
    def done_below(self) -> int:
        """This process has passed all steps below this one, and its devices have delivered their values."""
        return min([self.position, *(step for step, count in self.awaited.items() if count > 0)])

    def move(self, step: int) -> None:
        """Move to a step."""
        self.has_moved |= self.position not in (-1, step)
        self.position = step

    @property
    def is_rank(self) -> bool:
        """Whether it is a rank, not a process with a role."""
        return not self.started.role

    @property
    def label(self) -> str:
        """Its name in messages: `rank 3`, or its role and its number."""
        return process_name(self.started.role, self.started.rank)


Kind = Literal["value", "observations", "table"]
Source = tuple[str, Kind]
"""Something that was logged: its name, and what it is."""


class Parts(msgspec.Struct):
    """Numbers of late rows, or of tables that are not the first of their name: each step counts its own, from 1.

    Steps that were late are remembered, up to a limit; of those before them, numbers go up over all steps, so that
    no number is used twice.
    """

    last: dict[int, int] = {}  # the last number of steps that had late rows
    below: int = 0  # steps below this one are no longer remembered
    highest: int = 0  # the highest number among these

    def next(self, step: int) -> int:
        """Return the number of the next late row of a step."""
        if step < self.below:
            self.highest += 1
            return self.highest
        part = self.last[step] = self.last.get(step, 0) + 1
        if len(self.last) > _MOST_LATE_STEPS:
            first = min(self.last)
            self.highest = max(self.highest, self.last.pop(first))
            self.below = first + 1
        return part


class Written(msgspec.Struct, omit_defaults=True):
    """The messages of a trajectory, until the step that trains on it has closed."""

    group: str  # its group; itself if it has none
    journal: str = ""  # the journal that they are from; empty while only the step is known
    records: list[Wrote] = []  # the records that have them
    is_whole: bool = False  # if true, no more messages follow
    taken: tuple[int, int] | None = None
    """The attempt and the step that trained on it or dropped it; `None` if none has."""
    reward: float = math.nan  # its reward; NaN if unknown
    logprobs: bytes = b""  # log-probabilities of its tokens in the trainer, as native doubles
    waited: int = 0  # number of steps that have closed since
    size: int = 0  # bytes that it takes, about
    has_span: bool = True  # if false, it was given to `run.completions`


class State(msgspec.Struct):
    """The state of the reducer; `steps`, `closed`, `parts` and `table_parts` are by attempt."""

    journals: dict[str, Journal] = {}
    attempts: dict[str, int] = {}
    """The attempt of each start that a machine recorded, by its identity; only the head agent has these."""
    steps: dict[int, dict[int, dict[str, Contribution]]] = {}  # the contributions to open steps, by number and journal
    closed: dict[int, StepSet] = {}  # the steps that have closed
    parts: dict[int, Parts] = {}  # numbers of late rows
    table_parts: dict[int, Parts] = {}  # numbers of tables that are not the first of their name and step
    ended: Ended | None = None  # the end of the last attempt; `None` if it has not ended, or was revived
    dialect: str = ""  # the framework that was detected from the names; empty if unknown
    window: Window = msgspec.field(default_factory=Window)  # the observations since the last row for trackers
    labels: dict[str, int] = {}  # the index of each device in metric names, by its UUID or another identity
    forwarded: dict[str, int] = {}  # the number of records sent to the head, by journal
    renamed: dict[Source, str] = {}  # the names of what was logged under a name that was taken: see `row_names`
    written: dict[str, Written] = {}  # the messages of trajectories that wait for their step, by trace and span

    @property
    def last_attempt(self) -> int:
        """The number of the last attempt."""
        return max((journal.started.attempt for journal in self.journals.values()), default=0)

    def is_closed(self, attempt: int, step: int) -> bool:
        """Return whether a step has closed."""
        return attempt in self.closed and step in self.closed[attempt]


def host_of(state: State, attempt: int, rank: int) -> str:
    """Return the machine of a rank of an attempt, or of its last process; empty if it is unknown."""
    of_rank = [
        one
        for one in state.journals.values()
        if one.is_rank and (one.started.attempt, one.started.rank) == (attempt, rank)
    ]
    return max(of_rank, key=lambda one: (not one.over, one.started.time)).started.host if of_rank else ""


class Checkpoint(msgspec.Struct):
    """The point from which the next agent continues."""

    positions: dict[str, Position]
    state: State
    lost: dict[str, int] = {}
    analyses: dict[str, msgspec.Raw] = {}  # the part of each analysis, by name
    outputs: dict[str, int] = {}  # the bytes of each file that processes print into that were read


class _EarlierState(msgspec.Struct):
    time_spent: msgspec.Raw = msgspec.Raw()
    broken: msgspec.Raw = msgspec.Raw()


class _EarlierCheckpoint(msgspec.Struct):
    state: _EarlierState = msgspec.field(default_factory=_EarlierState)


def read_checkpoint(saved: bytes) -> Checkpoint:
    """Return a saved checkpoint; one of version 0.1.0 has the parts of two analyses in the state.

    Raises:
        msgspec.DecodeError: It is damaged, or of a later version.
    """
    checkpoint = msgspec.msgpack.decode(saved, type=Checkpoint)
    if not checkpoint.analyses:
        earlier = msgspec.msgpack.decode(saved, type=_EarlierCheckpoint).state
        parts = {"goodput": earlier.time_spent, "waits": earlier.broken}
        checkpoint.analyses = {name: part for name, part in parts.items() if bytes(part)}
    return checkpoint


def is_rollout(span: SpanStarted) -> bool:
    """Return whether a span is the root of a trace that waits for a step."""
    return span.name in ROLLOUTS and not span.parent_id and span.kind is not None

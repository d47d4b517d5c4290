"""The state of the reducer: plain data, saved in the outbox together with the items that were made from it."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from otel_rl import semconv
from otel_rl.agent.analysis.goodput import TimeSpent
from otel_rl.agent.steps.contribution import Contribution
from otel_rl.agent.steps.step_set import StepSet
from otel_rl.agent.steps.window import Window
from otel_rl.archive.now import Wait
from otel_rl.export import Ended, Outcome
from otel_rl.journal.records import UNKNOWN, DeviceMemory, DeviceSeen, Record, SpanStarted, Started, Wrote
from otel_rl.journal.segments import Position

_REMOTE = "@"
_MOST_LATE_STEPS = 256


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
    role = who.rstrip("0123456789")
    started = Started(
        run_id=run_id,
        attempt=int(attempt) if attempt.isdecimal() else 0,
        rank=int(who[len(role) :] or 0),
        world_size=1,
        local_world_size=1,
        role="" if role == "rank" else role,
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
    """The state of one process.

    Attributes:
        started: Its first record, with the attempt that it belongs to.
        recorded_attempt: The attempt that it recorded itself: see `attempts`.
        spans: Its open spans, by span id.
        step: The step that it is in, -1 outside of any.
        began_step_at: When it began that step.
        position: The step that it works on or worked on last; -1 before the first one. A process that marks steps moves
            when it begins one, another process when it logs for one.
        has_moved: If true, its position has changed since its first step.
        takes_part: If true, it has begun a step or logged.
        uses_steps: If true, it marks steps, and does not only name them in `log`.
        over: If true, it has ended.
        lost: If true, it died without a final record.
        outcome: How it ended.
        error: The error that ended it; empty if it finished.
        exit_code: As in `otel_rl.export.Ended`.
        ended_at: When it ended; for a lost process, when it was last known to be alive.
        order: Its position among the processes that failed, from 1; 0 if it did not fail.
        failed_in: The step that it left with an exception; -1 if it continued.
        last_time: Time of its last record.
        step_ended_at: When it ended a step last.
        resident: Its resident memory at the last boundary, in bytes.
        virtual: Its virtual memory then.
        refusals: Counts of refused calls, by reason.
        phases: Its open phases and parts of phases by span id, in the order in which they began.
        on_devices: The memory of its devices at the last boundary.
        highest: The most bytes reserved on them in the open step.
        timed: Ended phases whose time on the device is not known yet, by span id.
        awaited: The number of values that devices still have to deliver, by step.
        nonfinite: Losses and gradient norms that have been non-finite.
        exported: Its attempt, number of devices and end when it was last exported as a `Process`.
        samples: If true, it has sampled trajectories.
        version: The newest version of the policy that it has sampled with; -1 if unknown.
        left: The last spans that it had open when it died.
        dropped: The trajectories that it dropped by reason, since it began a step or trained on some.
        dropped_at: When it dropped some last.
    """

    started: Started
    recorded_attempt: int = 0
    spans: dict[int, SpanStarted] = {}
    step: int = -1
    began_step_at: int = 0
    position: int = -1
    has_moved: bool = False
    takes_part: bool = False
    uses_steps: bool = False
    over: bool = False
    lost: bool = False
    outcome: Outcome = "finished"
    error: str = ""
    exit_code: int = 0
    ended_at: int = 0
    order: int = 0
    failed_in: int = -1
    last_time: int = 0
    step_ended_at: int = 0
    resident: int = 0
    virtual: int = 0
    refusals: dict[str, int] = {}
    phases: dict[int, OpenPhase] = {}
    devices: dict[int, DeviceSeen] = {}
    on_devices: dict[int, DeviceMemory] = {}
    highest: dict[int, int] = {}
    timed: dict[int, Timed] = {}
    awaited: dict[int, int] = {}
    nonfinite: list[str] = []
    exported: tuple[int, int, int] | None = None
    samples: bool = False
    version: int = UNKNOWN
    left: list[SpanStarted] = []
    dropped: dict[str, int] = {}
    dropped_at: int = 0

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
        return f"{self.started.role or 'rank'} {self.started.rank}"


Kind = Literal["value", "observations", "table"]
Source = tuple[str, Kind]
"""Something that was logged: its name, and what it is."""


class Parts(msgspec.Struct):
    """Numbers of late rows, or of tables that are not the first of their name: each step counts its own, from 1.

    Steps that were late are remembered, up to a limit; of those before them, numbers go up over all steps, so that
    no number is used twice.

    Attributes:
        last: The last number of steps that had late rows.
        below: Steps below this one are no longer remembered.
        highest: The highest number among these.
    """

    last: dict[int, int] = {}
    below: int = 0
    highest: int = 0

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


class Broken(msgspec.Struct):
    """A reason why waits can never end.

    Attributes:
        wait: The first of them.
        seen_at: When the last one was open, in Unix nanoseconds.
    """

    wait: Wait
    seen_at: int


class Written(msgspec.Struct, omit_defaults=True):
    """The messages of a trajectory, until the step that trains on it has closed.

    Attributes:
        journal: The journal that they are from; empty while only the step is known.
        records: The records that have them.
        group: Its group; itself if it has none.
        is_whole: If true, no more messages follow.
        taken: The attempt and the step that trained on it or dropped it; `None` if none has.
        reward: Its reward; NaN if unknown.
        logprobs: Log-probabilities of its tokens in the trainer, as native doubles.
        waited: Number of steps that have closed since.
        size: Bytes that it takes, about.
        has_span: If false, it was given to `run.completions`.
    """

    group: str
    journal: str = ""
    records: list[Wrote] = []
    is_whole: bool = False
    taken: tuple[int, int] | None = None
    reward: float = math.nan
    logprobs: bytes = b""
    waited: int = 0
    size: int = 0
    has_span: bool = True


class State(msgspec.Struct):
    """The state of the reducer; `steps`, `closed`, `parts` and `table_parts` are by attempt.

    Attributes:
        attempts: The attempt of each start that a machine recorded, by its identity; only the head agent has these.
        steps: The contributions to open steps, by number and journal.
        closed: The steps that have closed.
        parts: Numbers of late rows.
        table_parts: Numbers of tables that are not the first of their name and step.
        ended: The end of the last attempt; `None` if it has not ended, or was revived.
        dialect: The framework that was detected from the names; empty if unknown.
        window: The observations since the last row for trackers.
        forwarded: The number of records sent to the head, by journal.
        labels: The index of each device in metric names, by its UUID or another identity.
        renamed: The names of what was logged under a name that was taken: see `row_names`.
        broken: The reasons why waits can never end, which were reported and not withdrawn.
        written: The messages of trajectories that wait for their step, by trace and span.
    """

    journals: dict[str, Journal] = {}
    attempts: dict[str, int] = {}
    steps: dict[int, dict[int, dict[str, Contribution]]] = {}
    closed: dict[int, StepSet] = {}
    parts: dict[int, Parts] = {}
    table_parts: dict[int, Parts] = {}
    ended: Ended | None = None
    dialect: str = ""
    window: Window = msgspec.field(default_factory=Window)
    labels: dict[str, int] = {}
    forwarded: dict[str, int] = {}
    time_spent: TimeSpent = msgspec.field(default_factory=TimeSpent)
    renamed: dict[Source, str] = {}
    broken: dict[str, Broken] = {}
    written: dict[str, Written] = {}

    def is_closed(self, attempt: int, step: int) -> bool:
        """Return whether a step has closed."""
        return attempt in self.closed and step in self.closed[attempt]


class Checkpoint(msgspec.Struct):
    """The point from which the next agent continues."""

    positions: dict[str, Position]
    state: State
    lost: dict[str, int] = {}

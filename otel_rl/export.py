"""The contract between the agent and an exporter.

The agent passes *items* (rows, measurements, parameters, tables, events, hangs, finished spans) to an exporter in the
order of the run. An exporter is one class with two methods, registered under the entry point group `otel_rl_exporter`.
It ignores the kinds of item that its backend does not support.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

ENTRY_POINT_GROUP = "otel_rl_exporter"
READER_ENTRY_POINT_GROUP = "otel_rl_metric_reader"

AttributeValue = bool | int | float | str | list[bool | int | float | str]
"""The value of an attribute, as OpenTelemetry allows it; a list holds values of one type."""


Cell = bool | int | float | str | None
"""The value of a table cell."""


class RunInfo(msgspec.Struct, frozen=True):
    """The run that an exporter exports."""

    id: str
    """Identity of the run (`rl.run.id`); the same in every attempt."""
    project: str
    """The project, by which trackers group runs."""
    name: str
    """The name of the run."""
    directory: str
    """The run directory; an exporter that writes files writes them there."""
    resource: dict[str, AttributeValue] = {}
    """OTel resource attributes, `service.name` and `rl.run.id` among them."""
    machine: str = ""
    """Name of this machine in the run directory, for files that each machine has for itself."""


class Row(msgspec.Struct, frozen=True, tag="row"):
    """The values of one step, reduced over ranks."""

    step: int
    """Iteration of the RL loop."""
    time_unix_nano: int
    """When the last value was recorded."""
    values: dict[str, int | float]
    """Values by name, in the framework's own spelling; NaN and infinities included."""
    attempt: int = 0
    """The attempt that recorded it; a resumed run may record a step again."""
    missing_ranks: tuple[int, ...] = ()
    """Ranks that had not reported when the row was closed."""
    late: bool = False
    """If true, the row holds values that arrived after the first row of its step was emitted."""
    trace_id: str = ""
    """Trace of the step, 32 hex digits."""
    span_id: str = ""
    """Root span of the step, 16 hex digits."""
    nonfinite: dict[str, int] = {}
    """By metric, the number of NaN and infinite samples, which are not part of any statistic."""
    measured: tuple[str, ...] = ()
    """Names of values that otel-rl measured or derived, rather than the trainer logged."""
    part: int = 0
    """The number of the row among those of its step and attempt; 0 is the first, late rows count up."""
    partial: bool = False
    """If true, a process died inside the step, so values may be missing."""
    begins: int | None = None
    """The first of the steps that the row is reduced over (`rows.every`); `None` if it is of one step."""
    digests: str = ""
    """Four hex digits for each rank, in their order, equal in two runs if the rank logged equal values; empty if there
    is one rank, or if the row is of several steps.
    """


ATTEMPT, PART, PARTIAL = "rl/attempt", "rl/part", "rl/partial"
"""Names of the values that distinguish the rows of a step in trackers that store only values."""


def values_of(row: Row | Machine, reserved: frozenset[str] = frozenset()) -> dict[str, int | float]:
    """Return the values of a row, and the marks that distinguish it from other rows of its step; or a machine's values.

    Most rows of a first attempt need none. Values of the trainer with such a name, or with one that the backend has
    `reserved`, are renamed: see `unreserved`.
    """
    if isinstance(row, Machine):
        return row.values
    marks = {ATTEMPT: row.attempt, PART: row.part, PARTIAL: int(row.partial)}
    taken = reserved.union(marks)
    values = {unreserved(name, taken): value for name, value in row.values.items()}
    return values | {name: value for name, value in marks.items() if value}


def unreserved(name: str, reserved: Container[str]) -> str:
    """Return a name, with `_` behind it if it is a reserved name, or one with `_`: different names stay different."""
    return f"{name}_" if name.rstrip("_") in reserved else name


class Machine(msgspec.Struct, frozen=True, tag="machine"):
    """Measurements of a machine, such as its GPUs, on their own time axis: they never advance the training step."""

    step: int
    """The value on `axis`: whole seconds since the start of the run."""
    time_unix_nano: int
    """When it was measured."""
    values: dict[str, int | float]
    """Values by name, such as `hardware/node.0.gpu.1.util`; for NeMo-RL and SkyRL `ray/node.0.gpu.1.util`."""

    @property
    def axis(self) -> str:
        """Name of the axis, one of `MACHINE_AXES`."""
        return MACHINE_AXES[any(name.startswith("ray/") for name in self.values)]


MACHINE_AXES = "hardware/seconds", "ray/ray_step"
"""The axes of measurements in trackers; the second one is NeMo-RL's."""


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """Records of one process, sent to the head agent."""

    journal: str
    """The name of the process's journal, unique in the run."""
    first: int
    """The index of the first of these records in the journal."""
    records: tuple[bytes, ...]
    """Each record in MessagePack."""


class Params(msgspec.Struct, frozen=True, tag="params"):
    """Hyperparameters, flattened with `.` and with secrets redacted."""

    time_unix_nano: int
    values: dict[str, bool | int | float | str | None]


class Event(msgspec.Struct, frozen=True, tag="event"):
    """An event, such as a checkpoint, a lost process or a call of `run.event`."""

    name: str
    time_unix_nano: int
    attributes: dict[str, AttributeValue] = {}
    step: int | None = None
    rank: int | None = None
    trace_id: str = ""
    span_id: str = ""


class Table(msgspec.Struct, frozen=True, tag="table"):
    """Rows of text and numbers of one step, such as prompts, completions and rewards."""

    name: str
    """The name, such as "completions"; an exporter escapes characters that its backend does not support."""
    step: int
    """Iteration of the RL loop."""
    time_unix_nano: int
    """When it was recorded."""
    columns: tuple[str, ...]
    """Names of the columns, each once."""
    rows: tuple[tuple[Cell, ...], ...]
    """The cells, one per column in each row; NaN and infinities included, `None` if a value is unknown or recording of
    texts is off.
    """
    attempt: int = 0
    """The attempt that recorded it."""
    ranks: tuple[int, ...] = ()
    """Ranks whose rows these are, in the order of the rows."""
    cut_rows: int = 0
    """The number of rows that were left out because there were too many."""
    part: int = 0
    """The number of the table among those of its name, step and attempt; 0 is the first. Tables of late ranks, and of
    ranks with other columns, count up.
    """


Outcome = Literal["finished", "failed", "cancelled", "crashed", "lost"]
"""How an attempt or a process ended: normally; by an exception or an exit code; because its user, the batch system or
its launcher stopped it; by a signal of a fault, such as SIGSEGV; or without a report.
"""
DeathCause = Literal["", "exit", "signal", "oom_kill", "exec", "slurm_time_limit", "slurm", "stopped"]
"""Why a process ended without a report: by `os._exit`, by SIGKILL, by the kernel for lack of memory, by another program
in its place, by the time limit of a Slurm job, by Slurm for another reason, or by its creator because the run ended;
empty if that is unknown.
"""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The end of an attempt; a backend shows the last one as the state of the run.

    A later row belongs to a new attempt, which has not ended yet.
    """

    time_unix_nano: int
    """When the last process ended."""
    attempt: int
    """The attempt that ended."""
    outcome: Outcome
    """The outcome of the rank that ended badly first; finished if none did."""
    error: str = ""
    """Type and message of the exception, name of the signal, or which process was lost; empty if finished."""
    exit_code: int = 0
    """0 if finished; if failed, the argument of `sys.exit`, else 1; 128 plus the number of the signal that ended it;
    255 if lost by an unknown one.
    """


class Process(msgspec.Struct, frozen=True, tag="process"):
    """A process that takes part in an attempt; exported when it begins, and again when more is known of it."""

    attempt: int
    """The attempt."""
    role: str
    """Its role; empty for a trainer rank."""
    rank: int
    """Its rank."""
    world_size: int
    """Number of ranks of the training."""
    host: str
    """Name of its machine."""
    pid: int
    """Its process id."""
    started_unix_nano: int
    """When it started to record."""
    devices: tuple[str, ...] = ()
    """Names of its accelerators, as far as they are known."""
    ended_unix_nano: int | None = None
    """When it ended; `None` while it runs."""
    outcome: Outcome | None = None
    """How it ended; `None` while it runs."""
    error: str = ""
    """As in `Ended`."""
    exit_code: int = 0
    """As in `Ended`."""
    cause: DeathCause = ""
    """Why it ended without a report; empty if it is unknown, or if it reported its end."""
    ended_step: int | None = None
    """The step in which it ended badly; `None` outside of any."""
    ended_phase: str = ""
    """The phase in which it ended badly, the innermost one; empty outside of any."""
    down_order: int = 0
    """Its place among the processes of its attempt that ended badly, from 1; 0 if it did not."""


WaitCause = Literal["", "dead", "ended", "circle"]
"""Why a wait can never end: who owes it is dead, has ended, or waits in turn; empty if it can, or if it is unknown."""


class Hang(msgspec.Struct, frozen=True, tag="hang"):
    """A process that made no progress; exported when the verdict is reached, when more is known of it, and at its end.

    A later item with the same `of` takes the place of an earlier one.
    """

    attempt: int
    """The attempt."""
    role: str
    """Role of the process; empty for a trainer rank."""
    rank: int
    """Rank of the process."""
    host: str
    """Name of its machine."""
    pid: int
    """Its process id."""
    step: int | None
    """The step that it is in; `None` outside of any."""
    phase: str
    """The phase that it is in; empty outside of any."""
    part: str
    """The part of the phase; empty if it is in none."""
    started_unix_nano: int
    """When it made progress last: it came to this place, or recorded something there."""
    time_unix_nano: int
    """When this was found."""
    kind: Literal["hung", "silent"]
    """The word "silent" if nothing arrives from its machine, so that it may be well; otherwise "hung"."""
    scope: Literal["process", "job"]
    """The word "job" if no rank makes progress, otherwise "process"."""
    evidence: str = ""
    """Its activity, in words."""
    cause: WaitCause = ""
    """Why its wait can never end; empty if that is unknown."""
    culprits: tuple[str, ...] = ()
    """The processes or servers that this is due to; empty if they are unknown."""
    ended_unix_nano: int | None = None
    """When it ended; `None` while it lasts."""
    ending: Literal["", "resumed", "over"] = ""
    """How it ended: "resumed" if the process made progress again, "over" if it died or ended; empty while it lasts."""

    @property
    def of(self) -> tuple[object, ...]:
        """Identity of the hang in its run: the process, the place, and when the process made progress last."""
        process = (self.attempt, self.role, self.rank, self.host, self.pid)
        return (*process, self.phase, self.part, self.started_unix_nano)


class Environment(msgspec.Struct, frozen=True, tag="environment"):
    """The software of an attempt: versions of packages, the source and its state, the launcher and the command."""

    attempt: int
    """The attempt."""
    time_unix_nano: int
    """When it was found."""
    host: str
    """Name of the machine that it was found on."""
    values: dict[str, str]
    """Values by name, such as `package.torch`; without secrets."""


class Trajectory(msgspec.Struct, frozen=True, tag="trajectory"):
    """A trajectory that a rank trained on or dropped in a step."""

    attempt: int
    """The attempt."""
    step: int
    """Iteration of the RL loop."""
    time_unix_nano: int
    """When it was recorded."""
    rank: int
    """Rank of the process that recorded it."""
    outcome: str
    """`trained`, or the reason why it was dropped."""
    policy_version: int
    """Version of the policy that is trained; -1 if unknown."""
    trace_id: str = ""
    """Its trace, 32 hex digits; empty if it has none."""
    span_id: str = ""
    """Its root span, 16 hex digits; empty if it has none."""
    reward: float = float("nan")
    """Its reward; NaN if unknown."""
    tokens: int = 0
    """Tokens that were generated for it."""
    versions: tuple[tuple[int, int], ...] = ()
    """Versions of the policies that generated it (-1: unknown), each with its tokens."""
    number: int = 0
    """Its number among those that the rank recorded at once."""
    prompt_id: str = ""
    """Identity of its prompt; empty if unknown."""
    group_id: str = ""
    """Identity of its group; empty if unknown."""
    row: str = ""
    """The row of the dataset that it is of; empty if unknown."""
    advantage: float = float("nan")
    """Its advantage; NaN if unknown."""
    loss: float = float("nan")
    """Its loss; NaN if unknown."""
    components: dict[str, float] = {}
    """The parts of its reward, by name."""
    sampled: bool = True
    """If false, trace sampling left out its trace: only exporters with `everything` get it."""


class Message(msgspec.Struct, frozen=True, tag="message"):
    """A message of a trajectory: what a person, the policy or a tool wrote.

    Tokens and what belongs to them are packed, because a message has thousands: `array("d", message.logprobs)` has the
    numbers. They are empty if they were not recorded.
    """

    attempt: int
    """The attempt."""
    step: int
    """The step that trained on the trajectory or dropped it; otherwise the step that was open."""
    time_unix_nano: int
    """When it was recorded."""
    role: str
    """Role of the process; empty for a trainer rank."""
    rank: int
    """Rank of the process."""
    trace_id: str
    """Trace of the trajectory, 32 hex digits."""
    span_id: str
    """Span of the trajectory, 16 hex digits."""
    number: int
    """Its place in the trajectory, from 0."""
    author: str
    """One of "system", "user", "assistant", "tool", or another author."""
    name: str = ""
    """Name of the tool; empty if it has none."""
    text: str = ""
    """The text, without secrets."""
    cut: int = 0
    """Number of characters that were cut from its end."""
    calls: str = ""
    """Tool calls in JSON; empty if there are none."""
    policy_version: int = -1
    """Version of the policy that wrote it; -1 if unknown."""
    tokens: bytes = b""
    """Ids of its tokens, as native 32-bit integers (`array("i")`)."""
    logprobs: bytes = b""
    """Log-probability of each token in the inference engine, as native doubles (`array("d")`)."""
    trainer_logprobs: bytes = b""
    """Log-probability of each token in the trainer, as native doubles."""
    mask: bytes = b""
    """One byte for each token: 1 if it is trained on, otherwise 0."""
    pieces: tuple[str, ...] = ()
    """The text of each token; empty if they were not recorded."""


STREAMS = ("stdout", "stderr", "output", "logging")
"""Where a line was printed; "output" is one file for the first two, and "logging" a message of Python's logging."""


class LogRecord(msgspec.Struct, frozen=True, tag="log"):
    """A line that a process printed, or a message of its logging, with the moment of the training that it belongs to.

    The step and the phase are those that the process was in when the line was read: at most half a second later if it
    went into a file.
    """

    attempt: int
    """The attempt."""
    time_unix_nano: int
    """When it was printed or, if it went into a file, read."""
    role: str
    """Role of the process; empty for a trainer rank."""
    rank: int | None
    """Rank of the process; `None` if several processes write to the file, and nothing says which it was."""
    host: str
    """Name of its machine."""
    number: int
    """Its place among the lines of its process, from 0."""
    stream: str
    """One of `STREAMS`."""
    text: str
    """The text as a terminal shows it, without secrets."""
    severity: int = 0
    """OpenTelemetry's severity number: 9 INFO, 13 WARN, 17 ERROR, 21 FATAL; 0 if it is not known."""
    logger: str = ""
    """Name of the logger; empty if it was printed."""
    step: int | None = None
    """The step that the process was in; `None` outside of any."""
    phase: str = ""
    """The innermost phase that it was in; empty outside of any."""
    trace_id: str = ""
    """Trace of the span that was open, 32 hex digits."""
    span_id: str = ""
    """The span that was open, 16 hex digits."""
    repeated: int = 1
    """How often the line came in a row."""
    cut: int = 0
    """Number of characters that were cut from its end."""
    left_out: int = 0
    """If above 0, it stands for so many lines that were left out here, as there were too many."""
    attributes: dict[str, AttributeValue] = {}
    """OpenTelemetry's `exception.*`, `code.*` and `thread.*`, as far as they are known."""


class SpanEvent(msgspec.Struct, frozen=True):
    """An event inside a span."""

    name: str
    time_unix_nano: int
    attributes: dict[str, AttributeValue] = {}


class SpanLink(msgspec.Struct, frozen=True):
    """A link from a span to another one; ids are lower-case hex."""

    trace_id: str
    span_id: str
    attributes: dict[str, AttributeValue] = {}


class Span(msgspec.Struct, frozen=True, tag="span"):
    """A finished span."""

    name: str
    """The OpenTelemetry name, with low cardinality."""
    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""
    parent_id: str
    """16 hex digits, or empty for a root."""
    start_unix_nano: int
    """When it started."""
    end_unix_nano: int
    """When it ended."""
    attributes: dict[str, AttributeValue] = {}
    """Its attributes."""
    error: str | None = None
    """The error message, which implies the status Error; `None` without an error."""
    kind: int = 0
    """OpenTelemetry's `SpanKind` as a number of the API (0 is INTERNAL)."""
    events: tuple[SpanEvent, ...] = ()
    """Events inside it."""
    links: tuple[SpanLink, ...] = ()
    """Links to other spans."""
    scope: tuple[str, str] = ("", "")
    """Name and version of the tracer that created it; empty for otel-rl itself."""
    resource: dict[str, AttributeValue] = {}
    """OpenTelemetry resource attributes of another program that sent it, such as an inference server; empty for the
    run's own processes.
    """
    ok: bool = False
    """If true, the status was set to OK explicitly."""
    sampled: bool = True
    """If false, trace sampling left it out: only exporters with `everything` get it."""
    own_ns: int | None = None
    """Of a phase or a part of one, the nanoseconds in which no phase that began later was open in its process; `None`
    if that is unknown.
    """


Item = (
    Row
    | Machine
    | Recorded
    | Params
    | Table
    | Event
    | Span
    | Ended
    | Process
    | Hang
    | Environment
    | Trajectory
    | Message
    | LogRecord
)
"""Anything that an exporter may export."""

Identity = tuple[object, ...]


def identity(item: Item) -> Identity:  # noqa: PLR0912  # a case for each kind
    """Return a value that is unique to the item in its run, and that is the same if the item is created again."""
    match item:
        case Row():
            return ("row", item.attempt, item.step, item.part)
        case Machine():
            return ("machine", item.step, item.time_unix_nano)
        case Recorded():
            return ("recorded", item.journal, item.first)
        case Params():
            return ("params", item.time_unix_nano)
        case Table():
            return ("table", item.attempt, item.step, item.name, item.ranks, item.time_unix_nano)
        case Event():
            return ("event", item.name, item.time_unix_nano, item.rank, item.span_id)
        case Span():
            return ("span", item.trace_id, item.span_id)
        case Ended():
            return ("ended", item.attempt, item.time_unix_nano)
        case Process():
            who = (item.attempt, item.role, item.rank, item.host, item.pid, item.started_unix_nano)
            return ("process", *who, item.devices, item.ended_unix_nano, item.outcome, item.down_order)
        case Hang():
            return ("hang", *item.of, item.time_unix_nano)
        case Environment():
            return ("environment", item.attempt, item.host, item.time_unix_nano)
        case Trajectory():
            return ("trajectory", item.attempt, item.step, item.rank, item.outcome, item.time_unix_nano, item.number)
        case Message():
            return ("message", item.attempt, item.step, item.trace_id, item.span_id, item.number)
        case LogRecord():
            place = (item.attempt, item.role, item.rank, item.host)
            return ("log", *place, item.stream, item.number, item.time_unix_nano)


class Identities:
    """A compact set of identities, for the items that a backend holds; 8 bytes each."""

    def __init__(self, identities: Iterable[Identity]) -> None:
        # Python salts hashes of texts in each process, so the set cannot be stored.
        self._hashes = array("q", sorted({hash(identity) for identity in identities}))

    def __contains__(self, identity: Identity) -> bool:
        sought = hash(identity)
        place = bisect_left(self._hashes, sought)
        return place < len(self._hashes) and self._hashes[place] == sought


class Refused(Exception):
    """Raised by an exporter for items that its backend will never accept.

    The agent counts them, logs the reason and continues with the next items.

    Attributes:
        done: The number of items, counted from the first, that were accepted or refused; `None` for all.
        count: The number of refused items among these; `None` for all.
        error_type: The attribute `error.type` in metrics, with low cardinality, such as "400".
    """

    def __init__(
        self, message: str, *, done: int | None = None, count: int | None = None, error_type: str = "refused"
    ) -> None:
        super().__init__(message)
        self.done = done
        self.count = count
        self.error_type = error_type


class NotNow(Exception):
    """Raised by an exporter whose backend cannot accept the items yet; the agent retries with the same exporter.

    Attributes:
        retry_after: Seconds that the backend asked to wait; `None` for exponential backoff.
        done: The number of items, counted from the first, that were accepted; only the others are retried.
        error_type: The attribute `error.type` in metrics, with low cardinality, such as "503".
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, done: int = 0, error_type: str = "not_now"
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.done = done
        self.error_type = error_type


class Gone(Exception):
    """Raised by an exporter if the backend's data, such as a file, was removed, replaced or truncated.

    The agent counts and logs it, and creates the exporter again. The new one gets all items that the outbox still has,
    except those for which `holds` returns true.
    """

    error_type = "gone"


@runtime_checkable
class Exporter(Protocol):
    """An exporter.

    One thread creates it as `factory(run, **options)` and calls it. It may block and raise without delaying other
    exporters. When `export` raises, the agent retries the same items with exponential backoff; after five failures it
    creates the exporter again. `Refused`, `NotNow` and `Gone` ask for other reactions. If a backend can accept a part
    of a batch without reporting how much, `batch_size` must stay 1.

    A class may have further attributes and methods:

    * `batch_size`: the largest number of items per call of `export` (default 1).
    * `requires`: the modules that it imports when it is created (default none).
    * `extra`: the extra of this distribution that installs these modules.
    * `everything`: if true, it also gets what others do without: spans that trace sampling left out (`Span.sampled` is
      false), and memory around phases. An exporter that only the trainer's process can create gets these spans if the
      run has an archive.
    * `durable()`: the number of items that the backend holds durably, counted in order since the exporter was created.
      The cursor moves no further. By default, items are durable when `export` returns. It raises `NotNow` if the
      backend cannot be asked; after five other errors, the exporter is created again.
    * `waits`: if true, items can stay non-durable until the trainer ends and `shutdown` is called; the agent does not
      replace the exporter because of that.
    * `shows_end`: if true, an exporter that is created again first gets the last `Ended` again, unless a later attempt
      has started. The agent does not count this item.
    * `holds(item)`: if true, the backend already has the item, from an exporter that was killed before its cursor
    moved,
      so the agent skips it. Without it, items are repeated after the outbox or the cursors were deleted.
    * `check(**options)`: called on the class at the start of the run, in the trainer's process. It raises `ValueError`
    for
      detectable errors, such as a file that does not exist. The message names the fix.
    """

    def export(self, items: Sequence[Item]) -> None:
        """Deliver `items`; they are durable when this returns, or when `durable` counts them."""

    def shutdown(self) -> None:
        """Flush, and release the resources; no call follows."""


class MetricsReader(Protocol):
    """A reader of OpenTelemetry instruments: a pull endpoint or a push exporter.

    It is registered under the entry point group `otel_rl_metric_reader`, and created in the agent as
    `factory(run, **options)`.

    A push exporter may also have `failures` (their number), `causes` (their number by type of error), `refused` (the
    number of refused metrics) and `last_error` (the last message).
    """

    reader: Any
    """An OpenTelemetry SDK `MetricReader`."""
    address: str | None
    """The address of a pull endpoint; empty for a push exporter."""

    def shutdown(self) -> None:
        """Release the resources that `reader.shutdown` does not release."""

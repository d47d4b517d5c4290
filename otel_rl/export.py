"""The contract between the agent and an exporter.

The agent passes *items* (rows, measurements, parameters, tables, events, finished spans) to an exporter in the order of
the run. An exporter is one class with two methods, registered under the entry point group `otel_rl_exporter`. It
ignores the kinds of item that its backend does not support.
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
    """The run that an exporter exports.

    Attributes:
        id: Identity of the run (`rl.run.id`); the same in every attempt.
        project: The project, by which trackers group runs.
        name: The name of the run.
        directory: The run directory; an exporter that writes files writes them there.
        resource: OTel resource attributes, `service.name` and `rl.run.id` among them.
        machine: Name of this machine in the run directory, for files that each machine has for itself.
    """

    id: str
    project: str
    name: str
    directory: str
    resource: dict[str, AttributeValue] = {}
    machine: str = ""


class Row(msgspec.Struct, frozen=True, tag="row"):
    """The values of one step, reduced over ranks.

    Attributes:
        step: Iteration of the RL loop.
        time_unix_nano: When the last value was recorded.
        values: Values by name, in the framework's own spelling; NaN and infinities included.
        attempt: The attempt that recorded it; a resumed run may record a step again.
        missing_ranks: Ranks that had not reported when the row was closed.
        late: If true, the row holds values that arrived after the first row of its step was emitted.
        part: The number of the row among those of its step and attempt; 0 is the first, late rows count up.
        partial: If true, a process died inside the step, so values may be missing.
        begins: The first of the steps that the row is reduced over (`rows.every`); `None` if it is of one step.
        trace_id: Trace of the step, 32 hex digits.
        span_id: Root span of the step, 16 hex digits.
        nonfinite: By metric, the number of NaN and infinite samples, which are not part of any statistic.
        measured: Names of values that otel-rl measured or derived, rather than the trainer logged.
        digests: Four hex digits for each rank, in their order, equal in two runs if the rank logged equal values; empty
            if there is one rank, or if the row is of several steps.
    """

    step: int
    time_unix_nano: int
    values: dict[str, int | float]
    attempt: int = 0
    missing_ranks: tuple[int, ...] = ()
    late: bool = False
    trace_id: str = ""
    span_id: str = ""
    nonfinite: dict[str, int] = {}
    measured: tuple[str, ...] = ()
    part: int = 0
    partial: bool = False
    begins: int | None = None
    digests: str = ""


ATTEMPT, PART, PARTIAL = "rl/attempt", "rl/part", "rl/partial"
"""Names of the values that distinguish the rows of a step in trackers that store only values."""


def values_of(row: Row | Machine, reserved: frozenset[str] = frozenset()) -> dict[str, int | float]:
    """Return the values of a row, with those that distinguish it from other rows of its step; those of a machine.

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
    """Return a name with a `_` behind it if it is reserved, or is a reserved one with `_`: different names stay so."""
    return f"{name}_" if name.rstrip("_") in reserved else name


class Machine(msgspec.Struct, frozen=True, tag="machine"):
    """Measurements of a machine, such as its GPUs, on their own time axis: they never advance the training step.

    Attributes:
        step: The value on `axis`: whole seconds since the start of the run.
        time_unix_nano: When it was measured.
        values: Values by name, such as `hardware/node.0.gpu.1.util`; for NeMo-RL and SkyRL `ray/node.0.gpu.1.util`.
    """

    step: int
    time_unix_nano: int
    values: dict[str, int | float]

    @property
    def axis(self) -> str:
        """Name of the axis, one of `MACHINE_AXES`."""
        return MACHINE_AXES[any(name.startswith("ray/") for name in self.values)]


MACHINE_AXES = "hardware/seconds", "ray/ray_step"
"""The axes of measurements in trackers; the second one is NeMo-RL's."""


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """Records of one process, sent to the head agent.

    Attributes:
        journal: The name of the process's journal, unique in the run.
        first: The index of the first of these records in the journal.
        records: Each record in MessagePack.
    """

    journal: str
    first: int
    records: tuple[bytes, ...]


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
    """Rows of text and numbers of one step, such as prompts, completions and rewards.

    Attributes:
        name: The name, such as "completions"; an exporter escapes characters that its backend does not support.
        step: Iteration of the RL loop.
        time_unix_nano: When it was recorded.
        columns: Names of the columns, each once.
        rows: The cells, one per column in each row; NaN and infinities included, `None` if a value is unknown or
            recording of texts is off.
        attempt: The attempt that recorded it.
        ranks: Ranks whose rows these are, in the order of the rows.
        cut_rows: The number of rows that were left out because there were too many.
        part: The number of the table among those of its name, step and attempt; 0 is the first. Tables of late ranks,
            and of ranks with other columns, count up.
    """

    name: str
    step: int
    time_unix_nano: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    attempt: int = 0
    ranks: tuple[int, ...] = ()
    cut_rows: int = 0
    part: int = 0


Outcome = Literal["finished", "failed", "crashed", "lost"]
"""How an attempt ended: normally, by an exception, by a signal that it could report, or without a report."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The end of an attempt; a backend shows the last one as the state of the run.

    A later row belongs to a new attempt, which has not ended yet.

    Attributes:
        time_unix_nano: When the last process ended.
        attempt: The attempt that ended.
        outcome: The worst outcome of its processes.
        error: Type and message of the exception, name of the signal, or which process was lost; empty if finished.
        exit_code: 0 if finished; if failed, the argument of `sys.exit`, else 1; if crashed, 128 plus the number of the
            signal; 255 if lost.
    """

    time_unix_nano: int
    attempt: int
    outcome: Outcome
    error: str = ""
    exit_code: int = 0


class Process(msgspec.Struct, frozen=True, tag="process"):
    """A process that takes part in an attempt; exported when it begins, and again when more is known of it.

    Attributes:
        attempt: The attempt.
        role: Its role; empty for a trainer rank.
        rank: Its rank.
        world_size: Number of ranks of the training.
        host: Name of its machine.
        pid: Its process id.
        started_unix_nano: When it started to record.
        devices: Names of its accelerators, as far as they are known.
        ended_unix_nano: When it ended; `None` while it runs.
        outcome: How it ended; `None` while it runs.
        error: As in `Ended`.
        exit_code: As in `Ended`.
    """

    attempt: int
    role: str
    rank: int
    world_size: int
    host: str
    pid: int
    started_unix_nano: int
    devices: tuple[str, ...] = ()
    ended_unix_nano: int | None = None
    outcome: Outcome | None = None
    error: str = ""
    exit_code: int = 0


class Environment(msgspec.Struct, frozen=True, tag="environment"):
    """The software of an attempt: versions of packages, the source and its state, the launcher and the command.

    Attributes:
        attempt: The attempt.
        time_unix_nano: When it was found.
        host: Name of the machine that it was found on.
        values: Values by name, such as `package.torch`; without secrets.
    """

    attempt: int
    time_unix_nano: int
    host: str
    values: dict[str, str]


class Trajectory(msgspec.Struct, frozen=True, tag="trajectory"):
    """A trajectory that a rank trained on or dropped in a step.

    Attributes:
        attempt: The attempt.
        step: Iteration of the RL loop.
        time_unix_nano: When it was recorded.
        rank: Rank of the process that recorded it.
        outcome: `trained`, or the reason why it was dropped.
        policy_version: Version of the policy that is trained; -1 if unknown.
        trace_id: Its trace, 32 hex digits; empty if it has none.
        span_id: Its root span, 16 hex digits; empty if it has none.
        reward: Its reward; NaN if unknown.
        tokens: Tokens that were generated for it.
        versions: Versions of the policies that generated it (-1: unknown), each with its tokens.
        number: Its number among those that the rank recorded at once.
        prompt_id: Identity of its prompt; empty if unknown.
        group_id: Identity of its group; empty if unknown.
        row: The row of the dataset that it is of; empty if unknown.
        advantage: Its advantage; NaN if unknown.
        loss: Its loss; NaN if unknown.
        components: The parts of its reward, by name.
        sampled: If false, trace sampling left out its trace: only exporters with `everything` get it.
    """

    attempt: int
    step: int
    time_unix_nano: int
    rank: int
    outcome: str
    policy_version: int
    trace_id: str = ""
    span_id: str = ""
    reward: float = float("nan")
    tokens: int = 0
    versions: tuple[tuple[int, int], ...] = ()
    number: int = 0
    prompt_id: str = ""
    group_id: str = ""
    row: str = ""
    advantage: float = float("nan")
    loss: float = float("nan")
    components: dict[str, float] = {}
    sampled: bool = True


class Message(msgspec.Struct, frozen=True, tag="message"):
    """A message of a trajectory: what a person, the policy or a tool wrote.

    Tokens and what belongs to them are packed, because a message has thousands: `array("d", message.logprobs)` has the
    numbers. They are empty if they were not recorded.

    Attributes:
        attempt: The attempt.
        step: The step that trained on the trajectory or dropped it; otherwise the step that was open.
        time_unix_nano: When it was recorded.
        role: Role of the process; empty for a trainer rank.
        rank: Rank of the process.
        trace_id: Trace of the trajectory, 32 hex digits.
        span_id: Span of the trajectory, 16 hex digits.
        number: Its place in the trajectory, from 0.
        author: "system", "user", "assistant", "tool", or another author.
        name: Name of the tool; empty if it has none.
        text: The text, without secrets.
        cut: Number of characters that were cut from its end.
        calls: Tool calls in JSON; empty if there are none.
        policy_version: Version of the policy that wrote it; -1 if unknown.
        tokens: Ids of its tokens, as native 32-bit integers (`array("i")`).
        logprobs: Log-probability of each token in the inference engine, as native doubles (`array("d")`).
        trainer_logprobs: Log-probability of each token in the trainer, as native doubles.
        mask: One byte for each token: 1 if it is trained on, otherwise 0.
        pieces: The text of each token; empty if they were not recorded.
    """

    attempt: int
    step: int
    time_unix_nano: int
    role: str
    rank: int
    trace_id: str
    span_id: str
    number: int
    author: str
    name: str = ""
    text: str = ""
    cut: int = 0
    calls: str = ""
    policy_version: int = -1
    tokens: bytes = b""
    logprobs: bytes = b""
    trainer_logprobs: bytes = b""
    mask: bytes = b""
    pieces: tuple[str, ...] = ()


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
    """A finished span.

    Attributes:
        name: The OpenTelemetry name, with low cardinality.
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: 16 hex digits, or empty for a root.
        start_unix_nano: When it started.
        end_unix_nano: When it ended.
        attributes: Its attributes.
        error: The error message, which implies the status Error; `None` without an error.
        kind: OpenTelemetry's `SpanKind` as a number of the API (0 is INTERNAL).
        events: Events inside it.
        links: Links to other spans.
        scope: Name and version of the tracer that created it; empty for otel-rl itself.
        resource: OpenTelemetry resource attributes of another program that sent it, such as an inference server; empty
            for the run's own processes.
        ok: If true, the status was set to OK explicitly.
        sampled: If false, trace sampling left it out: only exporters with `everything` get it.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_unix_nano: int
    end_unix_nano: int
    attributes: dict[str, AttributeValue] = {}
    error: str | None = None
    kind: int = 0
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    scope: tuple[str, str] = ("", "")
    resource: dict[str, AttributeValue] = {}
    ok: bool = False
    sampled: bool = True


Item = Row | Machine | Recorded | Params | Table | Event | Span | Ended | Process | Environment | Trajectory | Message
"""Anything that an exporter may export."""

Identity = tuple[object, ...]


def identity(item: Item) -> Identity:
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
            return ("process", *who, item.devices, item.ended_unix_nano)
        case Environment():
            return ("environment", item.attempt, item.host, item.time_unix_nano)
        case Trajectory():
            return ("trajectory", item.attempt, item.step, item.rank, item.outcome, item.time_unix_nano, item.number)
        case Message():
            return ("message", item.attempt, item.step, item.trace_id, item.span_id, item.number)


class Identities:
    """A compact set of identities, for the items that a backend holds; 8 bytes each."""

    def __init__(self, identities: Iterable[Identity]) -> None:
        self._hashes = array("q", sorted({hash(one) for one in identities}))

    def __contains__(self, one: Identity) -> bool:
        sought = hash(one)
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

    Attributes:
        reader: An OpenTelemetry SDK `MetricReader`.
        address: The address of a pull endpoint; empty for a push exporter.

    A push exporter may also have `failures` (their number), `causes` (their number by type of error), `refused` (the
    number of refused metrics) and `last_error` (the last message).
    """

    reader: Any
    address: str | None

    def shutdown(self) -> None:
        """Release the resources that `reader.shutdown` does not release."""

"""The contract between the agent and an exporter.

The agent hands an exporter *items* — rows, measurements, parameters, tables, events, finished spans — in the
order of the run. An exporter is one class with two methods, registered under the entry point group
`otel_rl_exporter`; it ignores the kinds of item that it has no place for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ENTRY_POINT_GROUP = "otel_rl_exporter"
READER_ENTRY_POINT_GROUP = "otel_rl_metric_reader"

AttributeValue = bool | int | float | str | list[bool | int | float | str]
"""What OpenTelemetry allows as the value of an attribute; a list holds values of one type."""


Cell = bool | int | float | str | None
"""What a table holds."""


class RunInfo(msgspec.Struct, frozen=True):
    """What an exporter knows of the run that it shows.

    Attributes:
        id: Identity of the run (`rl.run.id`); the same in every attempt.
        project: What trackers group runs by.
        name: What people call the run.
        directory: The run directory; an exporter that writes files writes them there.
        resource: OTel resource attributes, `service.name` and `rl.run.id` among them.
    """

    id: str
    project: str
    name: str
    directory: str
    resource: dict[str, AttributeValue] = {}


class Row(msgspec.Struct, frozen=True, tag="row"):
    """The values of one step, reduced over ranks, as a tracker shows them.

    Attributes:
        step: Iteration of the RL loop.
        time_unix_nano: When the last of the values was recorded.
        values: Value by name, in the framework's own spelling; NaN and infinities included.
        attempt: Which start of the run recorded it; a resumed run may record a step again.
        missing_ranks: Ranks that had not reported when the row was closed.
        late: Whether the row holds values that came after the step's own row had left.
        part: Which row of its step and attempt it is: 0 is the first, late rows count up.
        partial: If true, a process died inside the step, so values may be missing.
        begins: First of the steps that it is reduced over (`rows.every`); `None` if it is of its own step alone.
        trace_id: Trace of the step, 32 hex digits.
        span_id: Root span of the step, 16 hex digits.
        nonfinite: How many samples of a metric were NaN or infinite, and so are in no statistic.
        measured: Names of values that were measured or derived here, rather than logged by the trainer.
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


ATTEMPT, PART, PARTIAL = "rl/attempt", "rl/part", "rl/partial"
"""Names of the values by which a tracker that knows values alone tells the rows of a step apart."""


def values_of(row: Row) -> dict[str, int | float]:
    """Return the values of a row and what tells it from others of its step: nothing for most rows of a first attempt.

    A value of the trainer's that has one of these names gets a `_` behind it.
    """
    told = {ATTEMPT: row.attempt, PART: row.part, PARTIAL: int(row.partial)}
    values = {f"{name}_" if name in told else name: value for name, value in row.values.items()}
    return values | {name: value for name, value in told.items() if value}


class Machine(msgspec.Struct, frozen=True, tag="machine"):
    """What was measured of a machine, such as its GPUs, on a time axis of its own: it never moves the training step.

    Attributes:
        step: Its place on `MACHINE_AXIS`: whole seconds since the run began.
        time_unix_nano: When it was measured.
        values: Value by name, in NeMo-RL's spelling: `ray/node.0.gpu.1.util` and so on.
    """

    step: int
    time_unix_nano: int
    values: dict[str, int | float]


MACHINE_AXIS = "ray/ray_step"


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """Records of one process, for the agent of another machine that makes the rows.

    Attributes:
        journal: The process's journal, whose name is its own in the whole run.
        first: How many records of it went before.
        records: MessagePack of each.
    """

    journal: str
    first: int
    records: tuple[bytes, ...]


class Params(msgspec.Struct, frozen=True, tag="params"):
    """Hyper-parameters, flattened with `.`; secrets are redacted before they get here."""

    time_unix_nano: int
    values: dict[str, bool | int | float | str | None]


class Event(msgspec.Struct, frozen=True, tag="event"):
    """Something that happened once: a checkpoint, a lost process, what `run.event` was told."""

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
        name: What it is called, such as "completions"; an exporter that has no place for some of its
            characters escapes them.
        step: Iteration of the RL loop.
        time_unix_nano: When it was recorded.
        columns: Names of the columns, each once.
        rows: The cells, as many in a row as there are columns; NaN and infinities included, `None` where
            nothing is known or content is switched off.
        attempt: Which start of the run recorded it.
        ranks: Ranks whose rows these are, in the order of the rows.
        cut_rows: How many rows were left out because there were too many.
        part: Which table of its name, step and attempt it is: 0 is the first; tables of late ranks, and tables whose
            ranks have other columns, count up.
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
"""How an attempt ended: in order, by an exception, by a signal that it could report, or without a word."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The end of an attempt; the last one that an exporter was given is the state that its backend shows.

    A row that comes after it belongs to a new attempt, which has not ended yet.

    Attributes:
        time_unix_nano: When the last process ended.
        attempt: Which start of the run ended.
        outcome: The worst outcome of its processes.
        error: Type and message of the exception, name of the signal, or which process was lost; empty if finished.
        exit_code: 0 if finished; if failed, what `sys.exit` was given, else 1; 128 plus the number of the signal if
            crashed; 255 if lost.
    """

    time_unix_nano: int
    attempt: int
    outcome: Outcome
    error: str = ""
    exit_code: int = 0


class SpanEvent(msgspec.Struct, frozen=True):
    """A moment inside a span."""

    name: str
    time_unix_nano: int
    attributes: dict[str, AttributeValue] = {}


class SpanLink(msgspec.Struct, frozen=True):
    """A reference from a span to another one; ids as lower-case hex."""

    trace_id: str
    span_id: str
    attributes: dict[str, AttributeValue] = {}


class Span(msgspec.Struct, frozen=True, tag="span"):
    """A finished span.

    Attributes:
        name: Its OTel name, low in cardinality.
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: 16 hex digits, or empty for a root.
        start_unix_nano: When it began.
        end_unix_nano: When it ended.
        attributes: Its attributes.
        error: `None`, or what went wrong: the span's status is then Error.
        kind: OTel's `SpanKind` as its number in the API (0 is INTERNAL).
        events: Moments inside it.
        links: Other spans that it refers to.
        scope: Name and version of the tracer that made it; empty for otel-rl's own.
        resource: OTel resource attributes of another program that sent it, such as an inference server; empty for
            the run's own processes.
        ok: If true, its status was set to OK; otherwise it is unset, unless `error` is given.
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


Item = Row | Machine | Recorded | Params | Table | Event | Span | Ended
"""One thing that an exporter may show."""

Identity = tuple[object, ...]


def identity(item: Item) -> Identity:
    """Return what tells an item from every other item of its run, the same whenever it is made anew."""
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


class Identities:
    """A set of identities, or of what is at least as specific, for what a backend holds; 8 bytes for each."""

    def __init__(self, identities: Iterable[Identity]) -> None:
        self._hashes = array("q", sorted({hash(one) for one in identities}))

    def __contains__(self, one: Identity) -> bool:
        sought = hash(one)
        place = bisect_left(self._hashes, sought)
        return place < len(self._hashes) and self._hashes[place] == sought


class Refused(Exception):
    """Raised by an exporter for items that its backend will never take.

    The agent counts them, logs the reason and goes on with the next items.

    Attributes:
        done: How many of the items, from the first one on, are settled: taken or refused. `None` is all of them.
        count: How many of those were refused. `None` is all of those.
        error_type: Short and low in cardinality, such as "400"; `error.type` in metrics.
    """

    def __init__(
        self, message: str, *, done: int | None = None, count: int | None = None, error_type: str = "refused"
    ) -> None:
        super().__init__(message)
        self.done = done
        self.count = count
        self.error_type = error_type


class NotNow(Exception):
    """Raised by an exporter whose backend cannot take the items yet, and which need not be built anew for that.

    Attributes:
        retry_after: Seconds that the backend asked to wait; `None` if it did not say: the agent backs off.
        done: How many of the items, from the first one on, were taken; only the others are offered again.
        error_type: Short and low in cardinality, such as "503"; `error.type` in metrics.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, done: int = 0, error_type: str = "not_now"
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.done = done
        self.error_type = error_type


class Gone(Exception):
    """Raised by an exporter if what its backend held was removed, replaced or cut, such as a file.

    The agent counts and logs it, and builds the exporter anew. The new one is offered all items again that the outbox
    still has, and takes those that `holds` does not know.
    """

    error_type = "gone"


@runtime_checkable
class Exporter(Protocol):
    """An exporter.

    It is built as `factory(run, **options)`, and used, by one thread of its own: it may block and it
    may raise, without delaying another exporter. When `export` raises, the same items are
    offered again, after a pause that grows, after five times to one that is built anew; `Refused`,
    `NotNow` and `Gone` say more exactly what is to be done. A backend that cannot take a batch as a whole or
    not at all, and cannot say how much it took, leaves `batch_size` at 1.

    A class may say more about itself:

    * `batch_size`: how many items `export` gets at most (1 if absent).
    * `requires`: the modules that it imports when it is built (none if absent).
    * `extra`: the extra of this distribution that installs them.
    * `durable()`: how many of the items that it was given since it was built the backend holds safely, counted
      in their order; the cursor moves no further. Without it, all of them when `export` returns.
    * `waits`: if true, what is not safe waits for the trainer, so that the exporter is not replaced however long
      nothing becomes safe; `shutdown` makes it safe.
    * `shows_end`: if true, one that is built anew is given the last `Ended` again, before anything else and uncounted
      by the agent, as long as no later attempt has begun.
    * `holds(item)`: if true, the backend has the item already, from an exporter that was killed before its cursor
      moved; it is skipped. Without it, items come again if somebody deleted the outbox or the cursors.
    * `check(**options)`: called on the class when the run begins, in the trainer's process; raises `ValueError` for
      what can be known to be wrong then, such as a file that does not exist. The message names the fix.
    """

    def export(self, items: Sequence[Item]) -> None:
        """Deliver `items`; they are the backend's to keep when this returns, safe at last after `shutdown`."""

    def shutdown(self) -> None:
        """Release what the backend holds; nothing is exported afterwards."""


class MetricsReader(Protocol):
    """A way out for OTel instruments: a pull endpoint or a push exporter.

    Registered under the entry point group `otel_rl_metric_reader`, built in the agent as
    `factory(run, **options)`.

    Attributes:
        reader: An OpenTelemetry SDK `MetricReader`.
        address: Where to look at it, if it can be looked at.

    One that pushes may also have `failures`, `causes`, `refused` and `last_error`, with the meaning that they have for
    an exporter: how often it failed, by type of error, how many metrics were refused, and what was said last.
    """

    reader: Any
    address: str | None

    def shutdown(self) -> None:
        """Close what `reader` does not close itself."""

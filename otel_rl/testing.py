"""Recording in memory, for the tests of a trainer.

Inside `capture`, `otel_rl.init` begins runs without an agent, a journal or an exporter, whatever it is given. Settings
are checked, and values converted, refused and redacted, as in a real run. Nothing of otel-rl imports this room.
"""

from __future__ import annotations

from array import array
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.export import AttributeValue, Cell
from otel_rl.recorder.directory.directory import at, place_of
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.journal.records import (
    TOKEN_LISTS,
    AnyRecord,
    Configured,
    Consumed,
    Finished,
    Happened,
    Logged,
    Observed,
    Record,
    Refusals,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
    Tabled,
    Wrote,
)
from otel_rl.recorder.trainer import opening
from otel_rl.recorder.trainer.current import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.recorder.settings.settings import Settings


class Value(msgspec.Struct, frozen=True):
    """One value of one call of `log`; a tuple of floats if observations were logged."""

    name: str
    step: int
    value: int | float | tuple[float, ...]
    weight: int | float = 1


class Span(msgspec.Struct, frozen=True):
    """A step, a phase, a trajectory or a span of a library."""

    name: str
    """Name of the span; of a part, that of its phase."""
    step: int | None
    """Number of the step; `None` outside of a step."""
    part: str = ""
    """Name of the part of a phase; empty for the phase itself."""
    seconds: float | None = None
    """Duration; `None` while the span is open."""
    attributes: dict[str, AttributeValue] = {}
    """Its attributes."""
    error: tuple[str, str] | None = None
    """Type and text of the exception that left it."""


class Event(msgspec.Struct, frozen=True):
    """An event of `Run.event`."""

    name: str
    step: int | None
    attributes: dict[str, AttributeValue]


class Table(msgspec.Struct, frozen=True):
    """A table; cells with text are empty without `init(content=True)`."""

    name: str
    step: int
    columns: list[str]
    rows: list[tuple[Cell, ...]]


class Trajectories(msgspec.Struct, frozen=True):
    """The trajectories of one call of `trained` or `dropped`; `outcome` is "trained" or the reason."""

    step: int
    outcome: str
    rewards: tuple[float, ...]
    tokens: int
    advantages: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    logprobs: tuple[tuple[float, ...], ...] = ()


class Message(msgspec.Struct, frozen=True):
    """A message of a trajectory; there is none without `init(content=True)`."""

    author: str
    text: str
    name: str = ""
    calls: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    mask: tuple[bool, ...] = ()
    pieces: tuple[str, ...] = ()


class Captured:
    """The facts that the runs of a block have recorded so far, in the order of the calls."""

    def __init__(self) -> None:
        self._journals: list[_InMemory] = []

    @property
    def values(self) -> list[Value]:
        """All logged values."""
        values: list[Value] = []
        for record in self._records():
            if isinstance(record, Logged):
                values += [Value(name, record.step, value, record.weight) for name, value in record.values.items()]
            elif isinstance(record, Observed):
                values += [
                    Value(name, record.step, tuple(array("d", numbers))) for name, numbers in record.values.items()
                ]
        return values

    def value(self, name: str, step: int | None = None) -> int | float | tuple[float, ...] | None:
        """Return the last value of a metric, at a step if one is given; `None` if there is none."""
        values = [logged.value for logged in self.values if logged.name == name and step in (None, logged.step)]
        return values[-1] if values else None

    @property
    def steps(self) -> list[Span]:
        """All steps."""
        steps: list[Span] = []
        for journal in self._journals:
            ended = {record.step: record for record in journal.records if isinstance(record, StepEnded)}
            started = [record for record in journal.records if isinstance(record, StepStarted)]
            steps += [_span("rl.loop", "", start.step, start, ended.get(start.step)) for start in started]
        return steps

    @property
    def phases(self) -> list[Span]:
        """All phases and their parts."""
        return self._spans(phases=True)

    @property
    def spans(self) -> list[Span]:
        """All rollouts, trajectories and their parts, and spans of libraries."""
        return self._spans(phases=False)

    @property
    def events(self) -> list[Event]:
        """All events."""
        return [
            Event(record.name, record.step, record.attributes)
            for record in self._records()
            if isinstance(record, Happened)
        ]

    @property
    def params(self) -> dict[str, bool | int | float | str | None]:
        """All hyper-parameters, flattened, as trackers get them."""
        configured = [record.values for record in self._records() if isinstance(record, Configured)]
        return {name: value for values in configured for name, value in values.items()}

    @property
    def tables(self) -> list[Table]:
        """All tables."""
        records = (record for record in self._records() if isinstance(record, Tabled))
        return [Table(record.name, record.step, record.columns, record.rows) for record in records]

    @property
    def trajectories(self) -> list[Trajectories]:
        """The trajectories that were trained on or dropped."""
        records = (record for record in self._records() if isinstance(record, Consumed))
        return [
            Trajectories(
                *(record.step, record.outcome, _doubles(record.rewards), sum(array("q", record.segments)[2::3])),
                *(_doubles(record.advantages), _doubles(record.losses), tuple(map(_doubles, record.logprobs))),
            )
            for record in records
        ]

    @property
    def messages(self) -> list[Message]:
        """All messages of trajectories."""
        return [
            Message(**{name: _plain(name, getattr(message, name)) for name in Message.__struct_fields__})
            for record in self._records()
            if isinstance(record, Wrote)
            for message in record.messages
        ]

    @property
    def refused(self) -> dict[str, int]:
        """Number of refused calls, or parts of calls, as `Run.refused` has them."""
        counts = Counter[str]()
        for journal in self._journals:
            counts.update(
                next((record.counts for record in reversed(journal.records) if isinstance(record, Refusals)), {})
            )
        return dict(counts)

    @property
    def outcomes(self) -> list[str]:
        """How each run that has ended did: "finished", "failed", "cancelled" or "crashed"."""
        return [record.outcome for record in self._records() if isinstance(record, Finished)]

    def _records(self) -> list[Record]:
        return [record for journal in self._journals for record in journal.records]

    def _spans(self, *, phases: bool) -> list[Span]:
        ended = {record.span_id: record for record in self._records() if isinstance(record, SpanEnded)}
        started = [record for record in self._records() if isinstance(record, SpanStarted)]
        return [
            _span(start.name, start.part, start.step, start, ended.get(start.span_id))
            for start in started
            if (start.kind is None) is phases
        ]


@contextmanager
def capture() -> Iterator[Captured]:
    """Record the runs that a block begins in memory; finish the one that is left at its end.

    `run.dir` is a temporary directory, which is removed with the block.

    Raises:
        SettingsError: A run is being recorded in this process.
    """
    if (run := current()) is not None:
        raise SettingsError(f"run {run.id} is being recorded in this process; finish() it before capture()")
    captured, before = Captured(), opening.instead

    with TemporaryDirectory(prefix="otel-rl-", ignore_cleanup_errors=True) as place:

        def begin(settings: Settings) -> _Session:
            session = _Session(settings, Path(place))
            captured._journals.append(session.journal)
            return session

        opening.instead = begin
        try:
            yield captured
        finally:
            if (run := current()) is not None:
                run.finish(0)
            opening.instead = before


class _InMemory:
    """A journal that keeps its records as an agent would read them."""

    _encode = msgspec.msgpack.Encoder().encode
    _decode = msgspec.msgpack.Decoder(AnyRecord).decode
    asks_at = 0

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []

    def append(self, record: msgspec.Struct) -> None:
        """Keep a copy of a record."""
        self.records.append(self._decode(self._encode(record)))


class _Session(opening.Unrecorded):
    """A session that records in memory."""

    journal: _InMemory

    def __init__(self, settings: Settings, place: Path) -> None:
        super().__init__(msgspec.structs.replace(settings, dir=str(place), agent="off", quiet=True))
        self.directory = at(place_of(self.settings))
        self.directory.path.mkdir(parents=True, exist_ok=True)
        self.journal = _InMemory()

    def wait_until_delivered(self, _timeout: float) -> bool:
        """Return true: there is nothing to wait for."""
        return True


def _plain(name: str, value: Any) -> Any:
    """Return the value of a field of a message, whose lists of tokens are packed."""
    if name not in TOKEN_LISTS:
        return value
    numbers = array(TOKEN_LISTS[name], value)
    return tuple(map(bool, numbers) if name == "mask" else numbers)


def _doubles(raw: bytes) -> tuple[float, ...]:
    return tuple(array("d", raw))


def _span(
    name: str, part: str, step: int | None, start: StepStarted | SpanStarted, end: StepEnded | SpanEnded | None
) -> Span:
    if end is None:
        return Span(name, step, part)
    renamed = end.name if isinstance(end, SpanEnded) else None
    seconds = (end.time - start.time) / 1e9
    return Span(renamed or name, step, part, seconds, end.attributes or {}, end.error)

"""The contract between the agent and an analysis.

An analysis concludes something from the records of a run: that a rank is slow, that a memory fills up. It is one class,
registered under the entry point group `otel_rl_analysis`, which derives from `Analysis` and defines the methods that
it needs. The agent builds each registered one with a `Basis`, feeds it, and passes on what it returns.

An analysis that cannot be loaded is left out. A method that raises is counted, and the agent and the other analyses go
on. All methods run on one thread, except those of probes, and must return at once: the agent waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from otel_rl.export import WaitCause
from otel_rl.semconv.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_rl.export import AttributeValue, Event, Item

ENTRY_POINT_GROUP = "otel_rl_analysis"

Journal = Any
"""The state of one process: `otel_rl.recorder.agent.steps.state.Journal`. An analysis reads it."""
Record = Any
"""A record of a process: a class of `otel_rl.recorder.journal.records`; or one of the moments below."""
ClosedStep = Any
"""A step of all processes that has closed: `otel_rl.recorder.agent.steps.closed.Closed`."""
Handler = Callable[[str, Journal, Record], "Iterable[Item] | None"]
"""Takes the name of a journal, its state and a record; returns items that need not wait for their step."""
Attributes = tuple[tuple[str, str | int], ...]


class Point(NamedTuple):
    """A value of a metric, in its unit; attributes are sorted by name. `rl.metric` shows one that no registry has."""

    metric: str
    value: float
    attributes: Attributes = ()


class Measurement(NamedTuple):
    """The points that one probe measured at one time (Unix nanoseconds); empty if it has stopped to measure."""

    probe: str
    time: int
    points: tuple[Point, ...]


class Probe(Protocol):
    """Something that can be measured, such as a GPU or an inference server, and its name."""

    name: str

    def read(self) -> Iterable[Point]:
        """Measure. This may block and may raise: it runs in a thread of its own."""


class SpanOpened(NamedTuple):
    """The moment after a span began, if there was room for it; `record` is its `SpanStarted`."""

    record: Record


class SpanLeft(NamedTuple):
    """The moment after a span ended, with its `SpanStarted` and `SpanEnded`; also if its process died in it."""

    begun: Record
    ended: Record
    own_ns: int | None = None  # as in `otel_rl.export.Span`


class StepLeft(NamedTuple):
    """The moment after a process left a step, with its `StepEnded`; also if it died in it."""

    record: Record
    seconds: float | None  # None if the process did not begin the step, or has left it before


class ProcessEnded(NamedTuple):
    """The moment after a process ended or died, in Unix nanoseconds."""

    time: int


class ProcessResumed(NamedTuple):
    """The moment at which a process that counted as dead since `time` proves to be alive."""

    time: int


class Conclusion(NamedTuple):
    """The facts that an analysis gives at the close of a step."""

    values: Mapping[str, float] = {}  # columns of the row; names that were logged keep their value
    items: Sequence[Item] = ()


class LoopTurn(NamedTuple):
    """A turn of the agent's loop after which no record is left to read."""

    now: int  # Unix nanoseconds
    steady: float  # seconds of a clock that is never set back
    items: Sequence[Item]  # what the turn has made so far
    is_last: bool  # the agent may end after it


class Basis(msgspec.Struct, kw_only=True):
    """The facts that an analysis may read, and those that analyses have for each other."""

    state: Any  # `otel_rl.recorder.agent.steps.state.State`: the processes by journal, and the open steps
    vocabulary: Vocabulary  # what names of phases and metrics mean
    settings: Any  # `otel_rl.recorder.settings.settings.AgentSettings`
    has_all_rows: bool = True  # false if this agent sends its records to a head agent, which makes the rows
    heard: Callable[[str], int] = lambda machine: 0  # when another machine sent something last; 0 if unknown
    utilization: Mapping[str, float] = {}  # share of the time in which each GPU is busy, by its UUID
    together: frozenset[str] = frozenset()  # phases that all ranks leave together, as `stragglers` found
    broken: Mapping[str, tuple[WaitCause, tuple[str, ...]]] = {}
    """Why waits of processes can never end, and who that is due to, by journal, as `waits` found."""
    generated_tokens: float = 0.0  # that inference servers generated, as `engines` measured


class Analysis:
    """An analysis that takes nothing and gives nothing: each method can be replaced.

    Attributes:
        basis: What it may read.
    """

    scope: Literal["run", "machine"] = "run"
    """The word "run" if its points are about the run, so that of several agents one shows them; else "machine"."""
    urgent: Hashable = None
    """`now.json` is written at once when this changes."""

    def __init__(self, basis: Basis) -> None:
        self.basis = basis

    def handlers(self) -> Mapping[type, Handler]:
        """Return what it takes: a method for each type of record, called before the record is applied; or of moment."""
        return {}

    def attributes(self, journal: str, event: Event) -> Mapping[str, AttributeValue]:
        """Return attributes for an event that the process of a journal recorded."""
        return {}

    def close(self, step: ClosedStep, values: Mapping[str, float]) -> Conclusion:
        """Return what a step that closes adds to its row, whose values so far are given, and other items."""
        return Conclusion()

    def see(self, items: Sequence[Item]) -> Iterable[Item]:
        """Take rows and other items as they are made; return more items."""
        return ()

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Take measurements of the machine."""

    def tick(self, turn: LoopTurn) -> Iterable[Item]:
        """Look at the processes that live: not in an agent that only delivers what exists, or sends to a head."""
        return ()

    def probes(self) -> Iterable[Probe]:
        """Return what the agent has to measure for it."""
        return ()

    def points(self) -> Iterable[Point]:
        """Return the values of its metrics, every 2 s; those that are missing disappear."""
        return ()

    def now(self) -> Mapping[str, object]:
        """Return its part of `now.json`: fields of `otel_rl.recorder.archive.now.Now`, or names of its own."""
        return {}

    def snapshot(self) -> object:
        """Return its part of the checkpoint, plain data or msgspec structs; `None` if the next agent begins without."""
        return None

    def restore(self, saved: bytes) -> None:
        """Continue from its part of a checkpoint, which is encoded as MessagePack."""

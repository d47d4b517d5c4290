"""The contributions of processes to a step, which are brought together when the step closes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import AttributeValue, Span, SpanLink
from otel_rl.recorder.journal.records import Consumed, Tabled
from otel_rl.recorder.stats.pool import Pool
from otel_rl.semconv.repeatable import is_repeatable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Number = int | float
_MOST_DIGESTS = 256
"""Ranks of which rows have digests: of more, they would take most of the archive."""
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Contribution(msgspec.Struct):
    """The records of one process for a step that has not closed."""

    values: dict[str, Number] = {}  # values by name
    weights: dict[str, float] = {}  # the weights of values that have one, by name
    pools: dict[str, Pool] = {}  # observations by name
    tables: list[Tabled] = []  # tables, in the order in which they were recorded
    has_logged: bool = False  # if true, it logged something
    seconds: dict[str, float] = {}  # time in phases, by name
    own: dict[str, int] = {}  # nanoseconds of phases without those inside them, by name
    parts: dict[str, dict[str, float]] = {}  # time in parts of phases, by phase and part
    tokens: dict[str, float] = {}  # tokens that phases worked on, by name
    memory: dict[str, float] = {}  # memory of phases and devices, as rows have it
    begun: int | None = None  # when it began the step; `None` if it did not
    ended: int | None = None  # when it ended the step
    is_abandoned: bool = False  # if true, the process died inside the step
    spans: list[Span] = []  # finished spans
    consumed: list[Consumed] = []  # the trajectories that it consumed or dropped
    attributes: dict[str, AttributeValue] = {}  # attributes for the root span
    links: list[SpanLink] = []  # other spans that the root refers to
    error: str | None = None  # its error, if the step failed
    ok: bool = False  # if true, it has set the status to OK
    time: int = 0  # when the last value was recorded
    waiting: int = 0  # size of its spans, in bytes: see `bounds`

    @property
    def digest(self) -> int:
        """Sixteen bits that differ, almost surely, between runs in which this process logged different values."""
        values = {name: value for name, value in self.values.items() if is_repeatable(name)}
        pools = {name: (pool.kept, pool.count, pool.nonfinite) for name, pool in self.pools.items()}
        return zlib.crc32(_encode((values, pools))) & 0xFFFF

    def add_own(self, phase: str, nanoseconds: int | None) -> None:
        """Add to the own time of a phase; nothing for another span."""
        if nanoseconds:
            self.own[phase] = self.own.get(phase, 0) + nanoseconds

    def add_part(self, phase: str, part: str, seconds: float) -> None:
        """Add to the time of a part of a phase."""
        of_phase = self.parts.setdefault(phase, {})
        of_phase[part] = of_phase.get(part, 0.0) + seconds

    def add_memory(self, more: Mapping[str, float]) -> None:
        """Add values of memory; of several, the worst one is kept."""
        _keep_worst(self.memory, more)

    def replaced_by(self, later: Contribution) -> Contribution:
        """Return this contribution with the facts of the same rank's next process in place of its own.

        Facts that the later process did not record stay; all spans stay.
        """
        entered = self if later.begun is None else later
        tables = {(table.name, *table.columns): table for table in (*self.tables, *later.tables)}
        return Contribution(
            values=self.values | later.values,
            weights={name: w for name, w in self.weights.items() if name not in later.values} | later.weights,
            pools=self.pools | later.pools,
            tables=[*tables.values()],
            has_logged=self.has_logged or later.has_logged,
            seconds=self.seconds | later.seconds,
            own={name: self.own.get(name, 0) + later.own.get(name, 0) for name in {**self.own, **later.own}},
            parts=self.parts | later.parts,
            tokens=self.tokens | later.tokens,
            memory=self.memory | later.memory,
            begun=entered.begun,
            ended=entered.ended,
            is_abandoned=entered.is_abandoned,
            spans=self.spans + later.spans,
            consumed=later.consumed or self.consumed,
            attributes=self.attributes | later.attributes,
            links=self.links + later.links,
            error=entered.error,
            ok=entered.ok,
            time=max(self.time, later.time),
        )


class Whole:
    """A step of all processes, by the names of their journals.

    Attributes:
        by: The contributions, one of each rank.
        values: Values by name, then by journal.
        weights: The weights of values that have one, by name, then by journal.
        pools: Observations of all processes, by name.
        seconds: Time in phases by name, then by journal.
        parts: Time in parts of phases: by phase, by part, then by journal.
        tokens: Tokens that phases worked on, by name, then by journal.
        memory: Memory of phases and devices, the worst of all processes.
        digests: The digest of each process, if there are several, and not too many.
        begun: When each process began the step.
        ended: When each process ended it.
        spans: Finished spans of all processes.
        consumed: The trajectories that were consumed or dropped.
        time: When the last value was recorded.
    """

    def __init__(self, by: Mapping[str, Contribution]) -> None:
        self.by = by
        self.values: dict[str, dict[str, Number]] = {}
        self.weights: dict[str, dict[str, float]] = {}
        self.pools: dict[str, Pool] = {}
        self.seconds: dict[str, dict[str, float]] = {}
        self.parts: dict[str, dict[str, dict[str, float]]] = {}
        self.tokens: dict[str, dict[str, float]] = {}
        self.memory: dict[str, float] = {}
        is_digested = 1 < len(by) <= _MOST_DIGESTS
        self.digests = {journal: one.digest for journal, one in by.items()} if is_digested else {}
        for journal, one in by.items():
            for ours, theirs in (
                (self.values, one.values),
                (self.weights, one.weights),
                (self.seconds, one.seconds),
                (self.tokens, one.tokens),
            ):
                for name, value in theirs.items():
                    ours.setdefault(name, {})[journal] = value
            for phase, parts in one.parts.items():
                of_phase = self.parts.setdefault(phase, {})
                for part, seconds in parts.items():
                    of_phase.setdefault(part, {})[journal] = seconds
            _keep_worst(self.memory, one.memory)
            for name, pool in one.pools.items():
                if name in self.pools:
                    self.pools[name].merge(pool)
                else:
                    self.pools[name] = pool
        self.begun = {journal: one.begun for journal, one in by.items() if one.begun is not None}
        self.ended = {journal: one.ended for journal, one in by.items() if one.ended is not None}
        self.spans = [span for one in by.values() for span in one.spans]
        self.consumed = [record for one in by.values() for record in one.consumed]
        self.time = max((one.time for one in by.values()), default=0)

    @property
    def is_partial(self) -> bool:
        """Whether a process died inside the step."""
        return any(one.is_abandoned for one in self.by.values())


def whole(contributions: Mapping[str, Contribution], successions: Iterable[tuple[str, str]]) -> Whole:
    """Return a step of all processes, with each rank once, under its last journal.

    Args:
        contributions: By journal.
        successions: Pairs of journals of the same rank: an earlier process, and the next one.
    """
    by = dict(contributions)
    for earlier, later in successions:
        if earlier in by:
            one = by.pop(earlier)
            by[later] = one.replaced_by(by[later]) if later in by else one
    return Whole(by)


def _keep_worst(known: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        worst = min if name.endswith("/headroom") else max
        known[name] = worst(value, known.get(name, value))

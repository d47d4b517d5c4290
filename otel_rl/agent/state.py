"""What the reducer remembers: plain data, saved in the outbox beside what was made of it."""

from __future__ import annotations

import msgspec

from otel_rl.cadence import Window
from otel_rl.export import AttributeValue, Span
from otel_rl.journal import Position
from otel_rl.records import SpanStarted, Started, Tabled
from otel_rl.stats.pool import Pool

Number = int | float


class Journal(msgspec.Struct):
    """What is known of one process.

    Attributes:
        started: Its first record.
        spans: Its open spans.
        step: The step that it is in, -1 outside of any.
        moved_on_to: Steps below this one are done with, as far as this process is concerned.
        takes_part: Whether it ever began a step or logged.
        uses_steps: Whether it marks steps, rather than only naming them in `log`.
        over: Whether it finished or died.
        lost: Whether it died.
        last_time: Time of its last record.
        step_ended_at: When it ended a step last.
        resident: Its resident memory at the last boundary, in bytes.
        virtual: Its virtual memory then.
        refusals: What it could not serve, by reason.
    """

    started: Started
    spans: dict[int, SpanStarted] = {}
    step: int = -1
    moved_on_to: int = -1
    takes_part: bool = False
    uses_steps: bool = False
    over: bool = False
    lost: bool = False
    last_time: int = 0
    step_ended_at: int = 0
    resident: int = 0
    virtual: int = 0
    refusals: dict[str, int] = {}

    @property
    def is_rank(self) -> bool:
        """Whether it is an ordinary rank, rather than a process with a role of its own."""
        return not self.started.role


class OpenStep(msgspec.Struct):
    """A step whose row has not left yet.

    Attributes:
        values: By name, then by journal.
        weights: How many samples a value stands for, where that was said; by name, then by journal.
        samples: Pooled over journals, by name.
        tables: With the journal that each is from.
        reported: Journals that logged something.
        seconds: Time in phases by name, then by journal.
        tokens: Tokens that phases say they worked on, by name, then by journal.
        begun: When each journal began the step.
        ended: When each journal ended it.
        abandoned: Journals whose process died inside it.
        spans: Finished spans of it.
        attributes: Attributes for the root span.
        error: What went wrong on some rank.
        time: When the last value was recorded.
        heard_at: When it was last heard of from a process that is not inside it; 0 if never.
    """

    values: dict[str, dict[str, Number]] = {}
    weights: dict[str, dict[str, float]] = {}
    samples: dict[str, Pool] = {}
    tables: list[tuple[str, Tabled]] = []
    reported: list[str] = []
    seconds: dict[str, dict[str, float]] = {}
    tokens: dict[str, dict[str, float]] = {}
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    abandoned: list[str] = []
    spans: list[Span] = []
    attributes: dict[str, AttributeValue] = {}
    error: str | None = None
    time: int = 0
    heard_at: int = 0


class State(msgspec.Struct):
    """Everything that the reducer knows; `steps` and `closed` are by attempt.

    Attributes:
        journals: What is known of each process.
        steps: The open steps by number.
        closed: The last step that was closed.
        dialect: Which framework the names showed the trainer to be; empty if that is not known.
        window: What was averaged since the last row that left.
    """

    journals: dict[str, Journal] = {}
    steps: dict[int, dict[int, OpenStep]] = {}
    closed: dict[int, int] = {}
    dialect: str = ""
    window: Window = {}


class Checkpoint(msgspec.Struct):
    """Where an agent was: how far it had read each journal, and what it had not made items of yet."""

    positions: dict[str, Position]
    state: State

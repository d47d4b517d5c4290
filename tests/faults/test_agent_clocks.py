"""Clocks that jump, as the agent sees them: deadlines are kept on a clock that does not, and nothing ends early."""

from __future__ import annotations

import msgspec
import pytest

from otel_rl.export import Row, Span
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.journal.records import Finished, Logged, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from tests.recorder.agent.reducing import S, logged, reducing, rows, started

HOUR = 3600 * S


def feed(reducer: Reducer, now: float, journal: str, *records: Record) -> list[Row]:
    """Feed records at a time of the agent's steady clock, in seconds."""
    return rows(reducer.feed([(journal, record) for record in records], int(now * S)).items)


@pytest.mark.parametrize("jump", [-HOUR, 0, HOUR])
def test_a_wall_clock_that_jumps_moves_no_deadline(jump: int) -> None:
    """Rank 1 hangs in step 0: the row leaves 10 s after rank 0 was heard of last, whatever its clock says."""
    reducer = reducing()
    begun = 9 * HOUR
    feed(reducer, 1, "a", started(0, local=2), StepStarted(0, begun, b""), logged(0, x=1.0))
    feed(reducer, 1, "b", started(1, local=2), StepStarted(0, begun, b""))
    feed(reducer, 5, "a", StepEnded(0, begun + jump, b""), StepStarted(1, begun + jump + S, b""))

    assert rows(reducer.tick(14 * S).items) == []
    assert [(row.step, row.missing_ranks) for row in rows(reducer.tick(16 * S).items)] == [(0, (1,))]


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_jump_ends_no_waiting_for_ranks_that_begin(jump: int) -> None:
    """Rank 1 begins 3 s after rank 0, whose clock has jumped in between; its values are in the first row."""
    reducer = reducing()
    at = 9 * HOUR
    early = feed(reducer, 1, "a", started(0, local=2), StepStarted(0, at, b""), logged(0, x=1.0))
    early += feed(reducer, 2, "a", StepEnded(0, at + jump, b""), StepStarted(1, at + jump + S, b""))
    feed(reducer, 4, "b", started(1, local=2), StepStarted(0, at, b""), logged(0, x=3.0), StepEnded(0, at + S, b""))
    late = feed(reducer, 5, "b", StepStarted(1, at + 2 * S, b""))

    assert early == []
    assert [(row.values["x"], row.missing_ranks) for row in late] == [(2.0, ())]


def test_a_rank_that_never_begins_is_awaited_once() -> None:
    """Ten seconds of the agent's clock after the first one, though no clock of a record moves."""
    reducer = reducing()
    at = 9 * HOUR
    feed(reducer, 1, "a", started(0, local=2), StepStarted(0, at, b""), logged(0, x=1.0), StepEnded(0, at, b""))
    feed(reducer, 2, "a", StepStarted(1, at, b""))

    assert rows(reducer.tick(10 * S).items) == []
    assert [row.step for row in rows(reducer.tick(12 * S).items)] == [0]


def test_a_new_agent_waits_anew() -> None:
    """The next agent has another clock, perhaps of another machine; waiting rows still wait, but not forever."""
    first = reducing()
    feed(first, 5000, "a", started(0, local=2), StepStarted(0, 0, b""), logged(0, x=1.0))
    feed(first, 5000, "b", started(1, local=2), StepStarted(0, 0, b""))
    feed(first, 5001, "a", StepEnded(0, S, b""), StepStarted(1, 2 * S, b""))
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(first.state), type=State)
    second = reducing({}, state)

    assert rows(second.tick(3 * S).items) == []
    assert rows(second.tick(12 * S).items) == []
    assert [row.step for row in rows(second.tick(14 * S).items)] == [0]


def test_no_duration_is_negative() -> None:
    """A journal of before, whose clock was set back by an hour within a step and its phase."""
    reducer = reducing()
    at = 9 * HOUR
    records = [
        StepStarted(0, at, b""),
        SpanStarted(1, 0, bytes(16), 0, "generate", at + 1, b""),
        SpanStarted(2, 1, bytes(16), 0, "generate", at + 2, b"", part="execute"),
        Logged(0, at - HOUR, {"x": 1.0}),
        SpanEnded(2, at - HOUR, b""),
        SpanEnded(1, at - HOUR + 1, b""),
        StepEnded(0, at - HOUR + 2, b""),
        Finished(at - HOUR + 3),
    ]
    items = reducer.feed([("a", started())] + [("a", record) for record in records], S).items

    assert {name: v for row in rows(items) for name, v in row.values.items() if v < 0} == {}
    assert [one for one in items if isinstance(one, Span) and one.end_unix_nano < one.start_unix_nano] == []

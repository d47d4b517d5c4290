"""Limits of what the reducer holds: phases that stay open, and thousands of phases in one step."""

from __future__ import annotations

import msgspec
import pytest

from otel_rl import semconv
from otel_rl.export import Span
from otel_rl.recorder.agent.steps.bounds import MOST_OPEN
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import DeviceTimed, Logged, SpanEnded, SpanStarted, StepStarted
from tests.recorder.agent.reducing import S, feed, reducing, rows, started, step

MANY = 10_000


def begin(number: int, name: str = "generate") -> SpanStarted:
    return SpanStarted(number, 0, b"t" * 16, 0, name, number, b"")


def saved(state: State) -> bytes:
    return msgspec.msgpack.encode(state)


def test_phases_that_stay_open(caplog: pytest.LogCaptureFixture) -> None:
    """Those beyond the limit are counted and named once; everything else goes on, and ended ones make room."""
    state = State()
    reducer = reducing({}, state)
    feed(reducer, "a", started(), StepStarted(0, 0, b""))
    feed(reducer, "a", *(begin(n) for n in range(1, MOST_OPEN + 11)))
    feed(reducer, "a", SpanEnded(1, S, b""), begin(MANY * 10, "update"), SpanEnded(MANY * 10, 2 * S, b""))
    items = feed(reducer, "a", Logged(0, 1, {"x": 1.0}), StepStarted(1, 3 * S, b""))

    assert reducer.bounds.refused == 10
    assert len(state.journals["a"].spans) == MOST_OPEN - 1
    assert [(row.values["x"], "time/update" in row.values) for row in rows(items)] == [(1.0, True)]
    assert len(caplog.records) == 1
    assert len(saved(state)) < 4 << 20


def test_a_process_dies_with_open_phases() -> None:
    """All of them end, and those of the next process may be open again."""
    state = State()
    reducer = reducing({}, state)
    feed(reducer, "a", started(), StepStarted(0, 0, b""), *(begin(n) for n in range(1, MOST_OPEN + 1)))
    made = reducer.feed([("a", Lost(S))]).items
    feed(reducer, "b", started(attempt=1), StepStarted(1, S, b""), *(begin(n) for n in range(1, MOST_OPEN + 1)))

    assert sum(isinstance(item, Span) and item.name != "rl.loop" for item in made) == MOST_OPEN
    assert reducer.bounds.refused == 0


def test_many_phases_in_one_step() -> None:
    """Each leaves once, the row has the time of all, and what is saved stays small; also with restarts in between."""
    state = State()
    reducer = reducing({}, state)
    feed(reducer, "a", started(), StepStarted(0, 0, b""))
    found: list[Span] = []
    largest = 0
    for n in range(1, MANY + 1):
        found += [one for one in feed(reducer, "a", begin(n), SpanEnded(n, n + S, b"")) if isinstance(one, Span)]
        if n % 1000 == 0:
            largest = max(largest, len(saved(state)))
            state = msgspec.msgpack.decode(saved(state), type=State)
            reducer = reducing({}, state)
    items = feed(reducer, "a", StepStarted(1, 2 * S, b""))
    found += [item for item in items if isinstance(item, Span)]
    (row,) = rows(items)

    assert sorted(int(span.span_id, 16) for span in found) == [*range(1, MANY + 1)]
    assert row.values["time/generate"] == MANY
    assert largest < 2 << 20


def test_times_on_the_device_of_many_phases() -> None:
    """They are those of their phases, whatever order they arrive in."""
    reducer = reducing()
    feed(reducer, "a", started(), StepStarted(0, 0, b""))
    for n in (1, 2, 3):
        feed(reducer, "a", begin(n), SpanEnded(n, n + S, b"", timed=True))
    feed(reducer, "a", *(DeviceTimed(0, n, n / 10) for n in (2, 1, 3)))
    spans = [item for item in feed(reducer, "a", StepStarted(1, 2 * S, b"")) if isinstance(item, Span)]

    assert [span.attributes[semconv.PHASE_DEVICE_DURATION] for span in spans] == [0.1, 0.2, 0.3]


def test_a_time_on_the_device_of_a_phase_that_is_not_recorded() -> None:
    """It does not count as the arrival of a value that the step waits for."""
    state = State()
    reducer = reducing({}, state)
    feed(reducer, "a", started(), StepStarted(0, 0, b""), SpanEnded(7, S, b"", timed=True), DeviceTimed(0, 7, 0.5))

    assert state.journals["a"].awaited == {}


def test_open_steps_that_are_too_large() -> None:
    """They close, and what comes later is in a late row of the step."""
    reducer = reducing()
    feed(reducer, "a", started(), *step(0, 0, Logged(0, 1, {"x": 1.0}))[:2])
    (first,) = rows(reducer.close_all().items)
    (second,) = rows(feed(reducer, "a", Logged(0, 1, {"y": 2.0}), StepStarted(1, S, b"")))

    assert (first.values, first.late) == ({"x": 1.0}, False)
    assert (second.values["y"], second.late, second.part) == (2.0, True, 1)

"""The hang watch of an agent over processes that it follows: events, metric, and what `now.json` shows."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import pytest

from otel_rl.agent.output.gauges import Gauges
from otel_rl.agent.stalls import Stalls
from otel_rl.agent.steps.pipeline import Pipeline
from otel_rl.agent.steps.reduce import Reducer
from otel_rl.export import Event
from otel_rl.journal.records import SpanEnded, SpanStarted, StepStarted
from otel_rl.semconv.vocabulary import Vocabulary
from tests.agent.reducing import S, feed, reducing, started

AFTER = 10


def watching(reducer: Reducer) -> Stalls:
    """Return the watch of processes that have no CPU time, since they are records alone."""
    pipeline = SimpleNamespace(reducer=reducer, vocabulary=Vocabulary("verl"))
    return Stalls(cast("Pipeline", pipeline), Gauges("host"), AFTER, lambda host: 5 * S if host == "b" else 0)


def span(number: int, name: str, at: int) -> SpanStarted:
    return SpanStarted(number, 0, bytes(16), 0, name, at * S, b"")


def looked(stalls: Stalls, begin: int, end: int) -> list[Event]:
    return [event for at in range(begin, end) for event in stalls.look(at * S, at)]


def test_a_rank_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """One event, one line, one series and one entry, until the phase ends."""
    reducer = reducing()
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""), span(1, "gen", 0))
    stalls = watching(reducer)
    with caplog.at_level(logging.WARNING):
        (event,) = looked(stalls, 0, 20)
    (entry,), (point,) = stalls.shown(), stalls.points()
    feed(reducer, "rank0", SpanEnded(1, 20 * S, b""))
    (resumed,) = looked(stalls, 20, 25)

    assert (event.name, event.step, event.rank, resumed.name) == ("rl.phase.stalled", 0, 0, "rl.phase.resumed")
    assert event.attributes == {
        "host.name": "host",
        "rl.phase": "gen",
        "rl.stall.kind": "hung",
        "rl.stall.scope": "job",
        "rl.stall.age": 10.0,
        "rl.stall.deadline": 10.0,
        "rl.stall.ranks": [0],
        "rl.stall.evidence": "only its records are known",
    }
    assert (entry.phase, entry.rank, entry.since_unix_nano, entry.kind) == ("gen", 0, 0, "hung")
    assert (point.value, dict(point.attributes)["rl.phase"]) == (1, "generate")
    assert [one.getMessage() for one in caplog.records] == [
        "rank 0 hangs in gen: 10 s (only its records are known); no rank goes on",
        "rank 0 went on after 20 s in gen",
    ]
    assert (stalls.shown(), stalls.points()) == ((), [])


def test_a_worker_that_waits_for_work() -> None:
    """It is outside of any phase, or in one that is a wait, for as long as it likes."""
    reducer = reducing()
    feed(reducer, "rollout0", started(role="rollout"))
    feed(reducer, "rollout1", started(1, role="rollout"), span(1, "dequeue", 0))

    assert looked(watching(reducer), 0, 4000) == []


def test_processes_that_hang_together() -> None:
    """Many workers in one phase are one event, which names them all."""
    reducer = reducing()
    for rank in range(3):
        feed(reducer, f"rollout{rank}", started(rank, role="rollout"), span(1, "gen", rank))
    (event,) = looked(watching(reducer), 3, 30)

    assert (event.rank, event.attributes["rl.stall.ranks"]) == (0, [0, 1, 2])


def test_a_silent_machine(caplog: pytest.LogCaptureFixture) -> None:
    """One event for its processes, wherever they are; it says since when nothing arrives."""
    reducer = reducing()
    for rank in range(2):
        feed(reducer, f"rank{rank}@b", started(rank), StepStarted(0, 0, b""), span(1, f"gen{rank}", 0))
    stalls = watching(reducer)
    with caplog.at_level(logging.WARNING):
        (event,) = looked(stalls, 0, 60)

    assert (event.attributes["rl.stall.kind"], event.attributes["rl.stall.ranks"]) == ("silent", [0, 1])
    assert {(one.kind, one.silent_since_unix_nano) for one in stalls.shown()} == {("silent", 5 * S)}
    assert [one.getMessage() for one in caplog.records] == [
        "rank 0 and 1 more on host: nothing has arrived from its machine for 30 s; it may be well"
    ]


def test_threads_of_one_process() -> None:
    """The phase that one thread does not leave is named, also while another thread goes through phases."""
    reducer = reducing()
    inner = SpanStarted(2, 1, bytes(16), 0, "gen", 0, b"")
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""), span(1, "outer", 0), inner)
    stalls = watching(reducer)
    found = []
    for at in range(20):
        feed(reducer, "rank0", span(10 + at, "reward", at))
        found += looked(stalls, at, at + 1)
        feed(reducer, "rank0", SpanEnded(10 + at, at * S, b""))

    assert [(one.attributes["rl.phase"], one.attributes["rl.stall.kind"]) for one in found] == [("gen", "slow")]


def test_a_rank_that_starts() -> None:
    """Before its first step a rank may take 30 minutes, whatever is set."""
    reducer = reducing()
    feed(reducer, "rank0", started())
    stalls = watching(reducer)

    assert looked(stalls, 0, 1800) == []
    assert [one.name for one in looked(stalls, 1800, 1802)] == ["rl.phase.stalled"]

"""The hang watch of an agent over processes that it follows: events, metric, and what `now.json` shows."""

from __future__ import annotations

import logging

import msgspec
import pytest
from msgspec.structs import replace

from otel_rl.analyses.hang_watch import HangWatchAnalysis
from otel_rl.analysis import Basis, LoopTurn
from otel_rl.export import Event, Hang, Item
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Logged, Record, SpanEnded, SpanStarted, StepStarted
from otel_rl.recorder.settings.settings import AgentSettings
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import S, feed, reducing, started

AFTER = 10


def watching(reducer: Reducer) -> HangWatchAnalysis:
    """Return the watch of processes that have no CPU time, since they are records alone."""
    settings, heard = AgentSettings(stalled_after=AFTER), lambda host: 5 * S if host == "b" else 0
    return HangWatchAnalysis(Basis(state=reducer.state, vocabulary=Vocabulary("verl"), settings=settings, heard=heard))


def span(number: int, name: str, at: int) -> SpanStarted:
    return SpanStarted(number, 0, bytes(16), 0, name, at * S, b"")


def ticked(stalls: HangWatchAnalysis, begin: int, end: int) -> list[Item]:
    return [item for at in range(begin, end) for item in stalls.tick(LoopTurn(at * S, at, (), False))]


def looked(stalls: HangWatchAnalysis, begin: int, end: int) -> list[Event]:
    return [item for item in ticked(stalls, begin, end) if isinstance(item, Event)]


def hangs(stalls: HangWatchAnalysis, begin: int, end: int) -> list[Hang]:
    return [item for item in ticked(stalls, begin, end) if isinstance(item, Hang)]


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


def test_a_hang_is_a_record() -> None:
    """It has its beginning, at the last record in the phase, then why it can never end, then its end."""
    reducer = reducing()
    feed(reducer, "rank0", started(), StepStarted(4, 0, b""), span(1, "gen", 0), span(2, "inner", 2))
    feed(reducer, "rank0", SpanEnded(2, 3 * S, b""))
    stalls = watching(reducer)
    (begun,) = hangs(stalls, 0, 20)
    stalls.basis.broken = {"rank0": ("dead", ("rollout 1",))}
    (known,) = hangs(stalls, 20, 25)
    feed(reducer, "rank0", SpanEnded(1, 26 * S, b""))
    (ended,) = hangs(stalls, 26, 30)

    place = ("gen", 3 * S, 4, "hung", "job", 1)
    assert (begun.phase, begun.started_unix_nano, begun.step, begun.kind, begun.scope, begun.pid) == place
    assert (begun.time_unix_nano, begun.ended_unix_nano, begun.cause) == (10 * S, None, "")
    assert known == replace(begun, time_unix_nano=20 * S, cause="dead", culprits=("rollout 1",))
    assert ended == replace(known, time_unix_nano=26 * S, ended_unix_nano=26 * S, ending="resumed")


def test_a_hung_process_that_dies() -> None:
    """Its hang ends with it, without an event of its own, also in the last turn of the agent."""
    reducer = reducing()
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""), span(1, "gen", 0))
    stalls = watching(reducer)
    looked(stalls, 0, 20)
    feed(reducer, "rank0", Lost(20 * S))
    (ended,) = stalls.tick(LoopTurn(20 * S, 19.5, (), True))

    assert isinstance(ended, Hang)
    assert (ended.ended_unix_nano, ended.ending) == (20 * S, "over")


def test_an_agent_that_is_restarted_during_a_hang() -> None:
    """It neither forgets the hang nor repeats it, and sees that the process goes on, or has meanwhile."""
    reducer = reducing()
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""), span(1, "gen", 0))
    first = watching(reducer)
    (begun,) = hangs(first, 0, 20)

    def restarted() -> HangWatchAnalysis:
        stalls = watching(reducer)
        stalls.restore(msgspec.msgpack.encode(first.snapshot()))
        return stalls

    same = restarted()
    assert (ticked(same, 20, 200), same.shown()) == ([], first.shown())
    feed(reducer, "rank0", SpanEnded(1, 200 * S, b""))
    for stalls in (same, restarted()):
        ended, resumed = ticked(stalls, 201, 205)
        assert ended == replace(begun, time_unix_nano=201 * S, ended_unix_nano=200 * S, ending="resumed")
        assert isinstance(resumed, Event)
        assert resumed.name == "rl.phase.resumed"


def test_a_rank_whose_engines_generate() -> None:
    """Tokens are progress: it hangs a deadline after the last ones, and goes on with the next."""
    reducer = reducing()
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""), span(1, "gen", 0))
    stalls = watching(reducer)
    found: list[Item] = []
    for at in range(60):
        stalls.basis.generated_tokens += at < 15 or at > 50
        found += ticked(stalls, at, at + 1)

    assert [
        (one.started_unix_nano // S, one.time_unix_nano // S, one.ending) for one in found if isinstance(one, Hang)
    ] == [(14, 24, ""), (14, 51, "resumed")]


@pytest.mark.parametrize(
    "phase",
    [
        "dequeue",
        "async_barrier",
        "wait_for_policy",
        "get_batch",
        "queue.get",
        "awaitRollouts",
        "fetch_batch",
        "poll_work",
    ],
)
def test_a_worker_that_waits_for_work(phase: str) -> None:
    """It is outside of any phase, or in one that is a wait, for as long as it likes."""
    reducer = reducing()
    feed(reducer, "rollout0", started(role="rollout"))
    feed(reducer, "rollout1", started(1, role="rollout"), span(1, phase, 0))

    assert ticked(watching(reducer), 0, 4000) == []


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


def named(at: float, step: int) -> Logged:
    """Return a value that is logged for a step, at a second."""
    return Logged(step, int(at * S), {"reward": 1.0})


def fed(*records: tuple[str, Record]) -> HangWatchAnalysis:
    """Return the watch after records, each with its journal."""
    reducer = reducing()
    stalls = watching(reducer)
    for name, record in records:
        for handler in [stalls.handlers()[type(record)]] if type(record) in stalls.handlers() else []:
            handler(name, reducer.state.journals[name], record)
        feed(reducer, name, record)
    return stalls


def test_a_rank_that_only_logs() -> None:
    """It is late as one that marks steps: the steps that it names say how long one takes."""
    stalls = fed(("rank0", started()), *(("rank0", named(0.2 * number, number)) for number in range(5)))
    events = looked(stalls, 1, 20)

    assert [event.name for event in events] == ["rl.phase.stalled"]
    assert events[0].attributes["rl.stall.usual"] == pytest.approx(0.2)
    assert stalls.now()["usual"] == {"rank0": pytest.approx(0.2)}


def test_a_rank_that_logs_rarely() -> None:
    """A deadline that is set for phases is not one for ten steps: five times the longest time without a value is."""
    stalls = fed(("rank0", started()), *(("rank0", named(144 * number, 10 * number)) for number in range(4)))

    assert looked(stalls, 432, 432 + 5 * 144 - 2) == []
    assert [event.name for event in looked(stalls, 432 + 5 * 144 - 2, 432 + 5 * 144 + 2)] == ["rl.phase.stalled"]


def test_a_rank_that_has_named_one_step() -> None:
    """Nobody knows how long a step takes: it may take as long as a start."""
    assert looked(fed(("rank0", started()), ("rank0", named(0, 0))), 1, 1790) == []


def test_a_rank_that_logs_after_another_attempt_only_logged() -> None:
    """Each rank may log by itself again: one that does not begin is late."""
    stalls = fed(
        ("rank0", started()),
        *(("rank0", named(number, number)) for number in range(3)),
        ("again", started(attempt=1)),
    )

    assert [event.name for event in looked(stalls, 3, 1900)] == ["rl.phase.stalled"]


def test_a_rank_that_leaves_logging_to_another_one() -> None:
    """Nothing is known of where it is, so it neither hangs nor excuses the one that logs."""
    ranks = [("rank0", started(local=2)), ("rank1", started(1, local=2))]
    (event,) = looked(fed(*ranks, *(("rank0", named(number, number)) for number in range(5))), 5, 1700)

    assert (event.rank, event.attributes["rl.stall.scope"]) == (0, "job")

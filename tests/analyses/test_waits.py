"""The waits of processes, and who owes them, from the records of all processes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.analyses.waits import WaitsAnalysis
from otel_rl.analyses.waits.debts import judge
from otel_rl.analyses.waits.open_waits import open_waits
from otel_rl.analysis import LoopTurn
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.archive.now import Wait
from otel_rl.recorder.journal.ids import SpanIds, format_traceparent
from otel_rl.recorder.journal.record_events import Lost, from_event, to_event
from otel_rl.recorder.journal.records import Finished, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from tests.recorder.agent.reducing import S, feed, reducing, started

ENGINE = {"server.address": "127.0.0.1", "server.port": 8000}
_TRACE = b"t" * 16


def opened(
    span_id: int, name: str, at: int, *, parent: int = 0, step: int | None = None, kind: int | None = None, **more: Any
) -> SpanStarted:
    """Return the start of a span; `trace` is its trajectory, other keywords are what it awaits."""
    trace = more.pop("trace", span_id).to_bytes(16, "big")
    awaits = {name.replace("__", "."): value for name, value in more.items()}
    return SpanStarted(span_id, parent, trace, step, name, at * S, b"", kind, awaits=awaits or None)


def trajectory(span_id: int, at: int, **awaits: Any) -> SpanStarted:
    return opened(span_id, semconv.SPAN_TRAJECTORY, at, kind=0, **awaits)


def part(span_id: int, of: int, kind: str, at: int, **awaits: Any) -> SpanStarted:
    return opened(span_id, f"{semconv.SPAN_TRAJECTORY}.{kind}", at, parent=of, trace=of, kind=0, **awaits)


def run(ranks: int = 1, rollouts: int = 2) -> Reducer:
    """Return a reducer that knows some ranks, and rollout workers that have sampled."""
    reducer = reducing()
    for n in range(ranks):
        feed(reducer, f"rank{n}", started(n, local=ranks))
    for n in range(rollouts):
        feed(reducer, f"rollout{n}", started(n, role="rollout", local=rollouts), trajectory(1000 + n, 0))
        feed(reducer, f"rollout{n}", SpanEnded(1000 + n, S, b""))
    return reducer


def waits(reducer: Reducer, *together: str) -> dict[str, Wait]:
    """Return the waits by their kind."""
    return {one.kind: one for one in open_waits(reducer.state, together, ()).waits}


def verdicts(reducer: Reducer) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return what can never end, after two looks."""
    watch = WaitsAnalysis(reducer.analyses.basis)
    for _ in range(2):
        watch.tick(LoopTurn(100 * S, 0.0, (), True))
    return [(one.waiter, one.cause, one.culprits) for one in watch.waits if one.cause]


def test_the_trajectories_that_were_made() -> None:
    """Each process has the number of those that ended, how many of the last ones failed, and the last failure."""
    reducer = run(rollouts=1)
    for number, error in enumerate([None, ("ValueError", "no answer"), ("HTTPError", "500"), None], 2):
        feed(reducer, "rollout0", trajectory(number, number, prompt_id=number))
        feed(reducer, "rollout0", SpanEnded(number, number * S + 1, b"", error=error))
        feed(reducer, "rank0", trajectory(100 + number, number, prompt_id=number))
    made = {(one.role, one.rank): one for one in reducer.analyses.now()["made"]}

    assert [*made] == [("rollout", 0)]
    rollout = made["rollout", 0]
    assert (rollout.ended, rollout.failed, rollout.open, rollout.last) == (5, 0, 0, "prompt 5")
    assert (rollout.failure, rollout.failure_unix_nano, rollout.error) == ("prompt 4", 4 * S + 1, "HTTPError: 500")


def test_a_tool_of_a_group() -> None:
    """A rank in its rollout waits for the group of a trajectory, whose worker runs a tool since a time."""
    reducer = run()
    feed(reducer, "rank0", StepStarted(812, 10 * S, b""), opened(1, "generate", 11, step=812))
    feed(reducer, "rollout1", trajectory(2, 12, prompt_id=37), part(3, 2, "tool", 14, gen_ai__tool__name="pytest"))
    found = waits(reducer)

    group = found["group"]
    assert (group.waiter, group.subject, group.debtors, group.doing) == (
        "rank 0",
        "prompt 37",
        ("rollout 1",),
        "tool pytest",
    )
    assert (group.since_unix_nano, group.step, group.groups) == (14 * S, 812, 1)
    assert (found["queue"].is_any, found["queue"].debtors) == (True, ("rollout 0", "rollout 1"))
    assert (found["tool"].waiter, found["tool"].group, found["tool"].debtors) == ("rollout 1", "prompt 37", ())


@pytest.mark.parametrize(
    "awaits",
    [
        ENGINE,
        {"net.peer.name": "127.0.0.1", "net.peer.port": 8000},
        {"url.full": "http://127.0.0.1:8000/generate?x=1"},
        {"http.url": "http://127.0.0.1:8000"},
    ],
)
def test_a_request(awaits: dict[str, Any]) -> None:
    """The server that a client's span names owes the answer; a span that serves a request waits for nobody."""
    reducer = run()
    client = opened(3, "POST", 13, parent=2, trace=2, kind=2)
    client.awaits = awaits
    server = opened(9, "POST", 13, kind=1)
    server.awaits = awaits
    feed(reducer, "rollout0", trajectory(2, 12), client)
    feed(reducer, "rollout1", server)
    found = open_waits(reducer.state, (), ())

    assert [(one.kind, one.debtors) for one in found.waits] == [("request", ("127.0.0.1:8000 (from host)",))]
    assert found.servers == {}
    assert found.conditions == {"rank 0": "works", "rollout 0": "waits", "rollout 1": "works"}


def test_a_request_to_another_process() -> None:
    """The process that has a child of the client's span open owes the answer."""
    reducer = run()
    feed(reducer, "rank0", opened(5, "POST", 11, kind=2))
    feed(reducer, "rollout0", opened(6, "score", 12, parent=5, trace=5))

    assert waits(reducer)["request"].debtors == ("rollout 0",)


def test_ranks_that_have_not_come() -> None:
    """In a phase that ranks leave together, they wait for those that are neither in it nor beyond it."""
    reducer = run(ranks=4, rollouts=0)
    for n, phases in enumerate((["update"], ["reward"], [], ["update"])):
        feed(reducer, f"rank{n}", StepStarted(3, 10 * S, b""))
        for phase in phases:
            feed(reducer, f"rank{n}", opened(10 + n, phase, 11, step=3))
    feed(reducer, "rank3", SpanEnded(13, 12 * S, b""))

    assert waits(reducer, "update")["collective"].debtors == ("rank 1", "rank 2")
    assert not waits(reducer)
    feed(reducer, "rank1", Lost(13 * S, "oom_kill"))
    feed(reducer, "rank2", SpanEnded(99, 13 * S, b""), opened(12, "update", 14, step=3))
    assert waits(reducer, "update")["collective"].debtors == ("rank 1",)


def test_phases_that_ranks_leave_together() -> None:
    """They are learned from steps in which the ranks came apart; when a rank begins its step plays no part."""
    reducer = run(ranks=2, rollouts=0)
    for step in range(5):
        for n in range(2):
            at, ids = 100 * step + 30 * n, 100 * step + 10 * n + 1  # the clock of rank 1 is 30 s ahead
            late = 3 * n * (step % 2)
            spans: list[Record] = []
            for k, (phase, begin, end) in enumerate(
                (("a", late, 10 + n + late), ("sync", 10 + n + late, 20), ("b", 20, 30 + 5 * late))
            ):
                spans += [opened(ids + k, phase, at + begin, step=step), SpanEnded(ids + k, (at + end) * S, b"")]
            feed(reducer, f"rank{n}", StepStarted(step, at * S, b""), *spans, StepEnded(step, (at + 50) * S, b""))

    assert reducer.analyses.basis.together == {"sync"}


def test_a_sync_that_workers_have_not_seen() -> None:
    """Workers that sample with an older version owe it; one that died before the sync does not."""
    reducer = run(rollouts=3)
    feed(reducer, "rollout0", trajectory(2, 5, rl__policy__version=12))
    feed(reducer, "rollout2", trajectory(3, 5), Lost(9 * S, "oom_kill"))
    feed(reducer, "rank0", StepStarted(3, 9 * S, b""), opened(1, "weight_sync", 10, step=3, version=12))

    assert waits(reducer)["sync"].debtors == ("rollout 1",)


def test_workers_that_record_phases_alone() -> None:
    """A rank waits for them by the name of its phase; it waits in vain once all of them have died, idle or not."""
    reducer = run(rollouts=0)
    for n in (0, 1):
        feed(reducer, f"rollout{n}", started(n, role="rollout", local=2), opened(7 + n, "generate", 1))
        feed(reducer, f"rollout{n}", SpanEnded(7 + n, 2 * S, b""))
    feed(reducer, "rank0", StepStarted(3, 9 * S, b""), opened(1, "wait_for_rollouts", 10, step=3))
    assert waits(reducer)["queue"].debtors == ("rollout 0", "rollout 1")

    feed(reducer, "rollout0", Lost(11 * S, "oom_kill"))
    assert not verdicts(reducer)

    feed(reducer, "rollout1", Lost(12 * S, "oom_kill"))
    assert verdicts(reducer) == [("rank 0", "dead", ("rollout 0",))]


def test_a_rank_that_generates_itself_waits_for_no_worker() -> None:
    """Another process that generates too, such as for an evaluation, may die: the rank does not wait for it."""
    reducer = run(rollouts=0)
    feed(reducer, "eval", started(role="eval"), opened(7, "generate", 1), SpanEnded(7, 2 * S, b""))
    feed(reducer, "rank0", StepStarted(3, 9 * S, b""), opened(1, "generate", 10, step=3))
    feed(reducer, "eval", Lost(11 * S, "oom_kill"))

    assert not verdicts(reducer)


def test_a_worker_that_dies_with_a_trajectory() -> None:
    """The rank that was waiting never gets this group, unless another worker samples it again."""
    reducer = run()
    feed(reducer, "rank0", StepStarted(3, 9 * S, b""), opened(1, "generate", 10, step=3))
    feed(reducer, "rollout0", trajectory(2, 11, prompt_id=37))
    feed(reducer, "rollout1", trajectory(4, 11, prompt_id=38))
    assert not verdicts(reducer)

    feed(reducer, "rollout0", Lost(12 * S, "oom_kill"))
    assert verdicts(reducer) == [("rank 0", "dead", ("rollout 0",))]

    feed(reducer, "rollout1", trajectory(5, 13, prompt_id=37))
    assert not verdicts(reducer)


def test_all_workers_are_gone() -> None:
    """Then the queue stays empty. Workers that had ended well before are not waited for."""
    reducer = run()
    feed(reducer, "rollout0", Finished(5 * S))
    feed(reducer, "rank0", opened(1, "wait_for_rollouts", 10))
    assert waits(reducer)["queue"].debtors == ("rollout 1",)
    assert not verdicts(reducer)

    feed(reducer, "rollout1", Finished(12 * S))
    assert verdicts(reducer) == [("rank 0", "ended", ("rollout 1",))]

    later = run()
    feed(later, "rollout0", Finished(5 * S))
    feed(later, "rollout1", Finished(5 * S))
    feed(later, "rank0", opened(1, "wait_for_rollouts", 10))
    assert not waits(later)


@pytest.mark.parametrize("phase", ["checkpoint_sync", "barrier", "idle"])
def test_a_wait_that_is_not_for_trajectories(phase: str) -> None:
    """Its debtors are unknown."""
    reducer = run()
    feed(reducer, "rank0", opened(1, phase, 10))

    assert not waits(reducer)


def test_a_circle_of_names_and_tickets() -> None:
    """A phase names whom it waits for, or has the `traceparent` of a trajectory."""
    reducer = run()
    ticket = format_traceparent(SpanIds(2, 2))
    feed(reducer, "rollout0", trajectory(2, 11), opened(3, "pull_weights", 12, parent=2, trace=2, awaits=["rank 0"]))
    feed(reducer, "rank0", opened(1, "take", 10, awaits=ticket))

    assert {one for _, *one in map(list, verdicts(reducer)) for one in one[:1]} == {"circle"}
    assert verdicts(reducer)[0][2] == ("rank 0", "rollout 0")


def test_an_asynchronous_barrier() -> None:
    """A worker that waits for the trainer by design is not blamed, nor is a trainer that works or has other workers."""
    reducer = run()
    feed(reducer, "rollout0", opened(2, "wait_for_version", 10, awaits="rank 0"))
    feed(reducer, "rank0", StepStarted(3, 9 * S, b""), opened(1, "update_actor", 10, step=3))
    assert not verdicts(reducer)

    feed(reducer, "rank0", SpanEnded(1, 11 * S, b""), opened(5, "actor_dequeue", 11, step=3))
    assert not verdicts(reducer)  # worker 1 is idle, and may sample


def test_a_verdict_is_said_once_and_withdrawn() -> None:
    """It needs two looks. Two seconds after the wait has ended it is withdrawn."""
    reducer = run()
    feed(reducer, "rank0", opened(1, "take", 10, awaits="rollout 0"))
    feed(reducer, "rollout0", trajectory(2, 11), Lost(12 * S, "oom_kill"))
    watch = WaitsAnalysis(reducer.analyses.basis)

    def look(at: int) -> list[Event]:
        return watch.tick(LoopTurn(at * S, 0.0, (), True))

    assert look(20) == []
    (said,) = look(21)
    assert (said.name, said.rank, said.attributes[semconv.WAIT_CULPRITS]) == ("rl.wait.broken", 0, ["rollout 0"])
    assert look(22) == look(23) == []
    assert [(one.metric, one.value) for one in watch.points()] == [("rl.broken.waits", 1)]
    feed(reducer, "rank0", SpanEnded(1, 23 * S, b""))
    assert look(24) == []
    assert [one.name for one in look(30)] == ["rl.wait.resumed"]
    assert look(40) == watch.points() == []


def test_workers_without_numbers() -> None:
    """All have the same role and number. One that is dead does not speak for those that live."""
    reducer = reducing()
    feed(reducer, "rank0", started(0), opened(1, "generate", 10))
    for n in range(3):
        one = replace(started(0, role="rollout"), pid=n, time=n)
        feed(reducer, f"rollout{n}", one, trajectory(20 + n, 11, prompt_id=n))
    feed(reducer, "rollout2", Lost(12 * S, "oom_kill"))
    names = [f"rollout 0 (host, process {n})" for n in range(3)]

    assert open_waits(reducer.state, (), ()).conditions == {
        "rank 0": "waits",
        **dict.fromkeys(names[:2], "works"),
        names[2]: "dead",
    }
    assert verdicts(reducer) == [("rank 0", "dead", (names[2],))]
    feed(reducer, "rollout0", SpanEnded(20, 13 * S, b""), Finished(13 * S))
    feed(reducer, "rollout1", SpanEnded(21, 13 * S, b""), Finished(13 * S))
    assert {culprits for _, _, culprits in verdicts(reducer)} == {("rollout 0",)}


def test_a_rank_that_comes_back_alone() -> None:
    """It takes the place of the process before it."""
    reducer = run(ranks=2, rollouts=0)
    feed(reducer, "rank1", StepStarted(3, 10 * S, b""), opened(2, "update", 11, step=3), Lost(12 * S, "oom_kill"))
    feed(reducer, "rank0", StepStarted(3, 10 * S, b""), opened(1, "update", 11, step=3))
    assert waits(reducer, "update")["collective"].debtors == ("rank 1",)

    feed(reducer, "back", replace(started(1, local=2), time=13 * S), StepStarted(3, 14 * S, b""))
    feed(reducer, "back", opened(3, "update", 15, step=3))
    assert not waits(reducer, "update")


def test_the_next_agent() -> None:
    """It has what was open, and does not repeat a verdict."""
    reducer = run()
    feed(reducer, "rank0", opened(1, "take", 10, awaits="rollout 0"))
    feed(reducer, "rollout0", trajectory(2, 11, prompt_id=3), Lost(12 * S, "oom_kill"))
    watch = WaitsAnalysis(reducer.analyses.basis)
    assert [len(watch.tick(LoopTurn(at * S, 0.0, (), True))) for at in (20, 21)] == [0, 1]

    state = msgspec.msgpack.decode(msgspec.msgpack.encode(reducer.state), type=State)
    saved = {"waits": msgspec.Raw(msgspec.msgpack.encode(watch.snapshot()))}
    after = reducing(state=state, saved=saved).analyses.by_name["waits"]
    assert [after.tick(LoopTurn(at * S, 0.0, (), True)) for at in (22, 23, 24)] == [[], [], []]
    assert after.waits[0].cause == "dead"


def test_records_of_other_machines() -> None:
    """They say what a span waits for too."""
    record = opened(1, "take", 10, awaits=["rank 0", "x:80"], version=12, rate=0.5)

    assert from_event(*to_event(record)) == record


def test_a_large_run() -> None:
    """Of thousands of debtors, few are listed."""
    reducer = reducing()
    for n in range(200):
        reducer.feed([(f"rank{n}", started(n, local=200)), (f"rank{n}", StepStarted(3, 10 * S, b""))])
        if n % 2:
            reducer.feed([(f"rank{n}", opened(n + 1, "update", 11, step=3))])
    found = open_waits(reducer.state, ("update",), ())

    assert len(found.waits) == 100
    assert {len(one.debtors) for one in found.waits} == {64}
    assert not judge(found.waits, found.conditions)


def test_a_barrier_at_which_all_name_all() -> None:
    """Those that are there owe nothing, and nobody waits for itself."""
    reducer = run(ranks=3, rollouts=0)
    everybody = [f"rank {n}" for n in range(3)]
    for n in range(2):
        feed(reducer, f"rank{n}", opened(n + 1, "exchange", 10, awaits=everybody))

    assert {one.debtors for one in open_waits(reducer.state, (), ()).waits} == {("rank 2",)}
    assert not verdicts(reducer)
    feed(reducer, "rank2", opened(3, "exchange", 10, awaits=everybody))
    assert not verdicts(reducer)


@pytest.mark.parametrize(("phase", "culprits"), [("generate", set()), ("actor_dequeue", {"rollout 0"})])
def test_workers_that_were_stopped_before(phase: str, culprits: set[str]) -> None:
    """A trainer that then samples waits for nobody; one that takes from a queue still does."""
    reducer = run()
    for n in range(2):
        feed(reducer, f"rollout{n}", trajectory(20 + n, 5), Lost(6 * S, "oom_kill"))
    feed(reducer, "rank0", opened(1, phase, 10))

    assert {one for _, _, those in verdicts(reducer) for one in those} == culprits


def test_a_trajectory_without_a_group_that_may_be_sampled_again() -> None:
    """If another one has begun since its worker died, it may stand for it."""
    reducer = run()
    feed(reducer, "rank0", StepStarted(3, 9 * S, b""), opened(1, "generate", 10, step=3))
    feed(reducer, "rollout0", trajectory(2, 11), Lost(12 * S, "oom_kill"))
    assert verdicts(reducer)

    feed(reducer, "rollout1", trajectory(4, 13))
    assert not verdicts(reducer)

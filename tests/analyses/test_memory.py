"""Events for non-finite numbers and for memory that grows or is exhausted."""

from __future__ import annotations

import math

from otel_rl.analyses.memory import HostMemory, MemoryAnalysis
from otel_rl.analyses.memory.ledger import Account
from otel_rl.analysis import Basis, Measurement, Point
from otel_rl.export import Event, Item
from otel_rl.recorder.agent.steps.state import Journal, OpenPhase, State
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import (
    DeviceMemory,
    DeviceSeen,
    Finished,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
)
from otel_rl.recorder.settings.settings import AgentSettings
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import S, feed, logged, reducing, started

GIB = 1 << 30


def events(items: list[Item]) -> list[Event]:
    return [item for item in items if isinstance(item, Event)]


def test_the_first_loss_that_is_not_finite() -> None:
    """It names metric, value, step, rank and phase, once for each metric and rank."""
    reducer = reducing(dialect="verl")
    reducer.feed([("a", started(0, local=2)), ("b", started(1, local=2))])
    found: list[Event] = []
    for step in range(2):
        for rank in "ab":
            begun = (StepStarted(step, 0, b""), SpanStarted(1, 0, b"", step, "update_actor", 0, b""))
            values = logged(
                step, actor__pg_loss=math.nan if rank == "b" else 0.5, actor__grad_norm=1.0, reward=math.inf
            )
            found += events(feed(reducer, rank, *begun, values, SpanEnded(1, S, b""), StepEnded(step, S, b"")))

    assert [(event.name, event.step, event.rank, event.attributes) for event in found] == [
        (
            "rl.numerics.nonfinite",
            *(0, 1),
            {
                "rl.metric.name": "actor/pg_loss",
                "rl.value": "nan",
                "rl.phase": "update_actor",
                "host.name": "host",
            },
        )
    ]


def test_a_gradient_norm_that_no_dialect_knows() -> None:
    """The last part of its name decides."""
    reducer = reducing()
    reducer.feed([("a", started())])
    found = events(feed(reducer, "a", logged(0, my__grad_norm=math.inf, my__entropy=math.nan)))

    assert [event.attributes["rl.metric.name"] for event in found] == ["my/grad_norm"]


def test_memory_that_grows() -> None:
    """The event names the device, the phase, the growth and the steps that are left."""
    reducer = reducing()
    reducer.feed([("a", started()), ("a", DeviceSeen(0, 0, "GPU-7", "H200", 80 * GIB))])
    found: list[Event] = []
    for step, residual in enumerate((4.0, 12.0, 21.0)):
        level = [DeviceMemory(0, round(residual * GIB), 0, 0, 0)]
        before = [DeviceMemory(0, round((residual - 8 if step else 4) * GIB), 0, 0, 0)]
        found += events(
            feed(
                reducer,
                "a",
                StepStarted(step, 0, b"", before),
                SpanStarted(1, 0, b"", step, "generate", 0, b"", None, before),
                SpanEnded(1, S, b"", devices=level),
                StepEnded(step, S, b"", devices=level),
            )
        )
    (event,) = found

    assert (event.name, event.step, event.rank) == ("rl.memory.growing", 2, 0)
    assert event.attributes["hw.id"] == "GPU-7"
    assert event.attributes["rl.phase"] == "generate"
    assert event.attributes["rl.memory.exhaustion.steps"] == round((80 - 21) / 8.5)
    assert event.attributes["rl.memory.message"] == "out of memory in about 7 steps, growing in phase generate"


def test_host_memory_has_the_same_treatment() -> None:
    """Which phase leaks: the resident memory of the process, and what is left of the host's."""
    reducer = reducing()
    reducer.feed([("a", started())])
    reducer.analyses.by_name["memory"].host = HostMemory(limit=100 * GIB, left=30 * GIB)
    found: list[Event] = []
    for step in range(12):
        before, after = (f"0 {gib * GIB // 4096} 0 0 0 0 0".encode() for gib in (20 + 2 * step, 22 + 2 * step))
        found += events(
            feed(
                reducer,
                "a",
                StepStarted(step, 0, before),
                SpanStarted(1, 0, b"", step, "generate", 0, before),
                SpanEnded(1, S, before),
                SpanStarted(2, 0, b"", step, "reward", S, before),
                SpanEnded(2, 2 * S, after),
                StepEnded(step, 2 * S, after),
            )
        )

    assert [(event.attributes["rl.memory.of"], event.attributes["rl.phase"]) for event in found] == [("host", "reward")]
    assert found[0].attributes["rl.memory.exhaustion.steps"] == 15


def test_the_books_of_a_process_that_is_over_are_closed() -> None:
    """Role processes may come and go by the thousand; a process that is heard of again begins new books."""
    reducer = reducing()
    for number in range(100):
        name, snapshot = f"worker{number}", b"0 1000 0 0 0 0 0"
        reducer.feed([(name, started(number, role="worker"))])
        ended = Finished(2 * S) if number % 2 else Lost(2 * S)
        feed(reducer, name, SpanStarted(1, 0, b"", 0, "score", 0, snapshot), SpanEnded(1, S, snapshot), ended)

    assert reducer.analyses.by_name["memory"].ledger.accounts() == []


def memory_of() -> MemoryAnalysis:
    """Return the analysis over one process."""
    state = State(journals={"rank0": Journal(started())})
    return MemoryAnalysis(Basis(state=state, vocabulary=Vocabulary("trl"), settings=AgentSettings()))


def test_the_memory_of_a_tree_is_in_the_books() -> None:
    """Under the phase that its trainer is in."""
    memory, rank = memory_of(), (("rl.process.scope", "tree"), ("rl.rank", 0))
    memory.measured([Measurement("processes", S, (Point("process.memory.usage", GIB, rank),))])
    memory.basis.state.journals["rank0"].phases = {1: OpenPhase("generate")}
    memory.measured([Measurement("processes", 2 * S, (Point("process.memory.usage", 3 * GIB, rank),))])
    account = Account("rank0", "host_tree")
    memory.ledger.close_step(account, 0)

    assert memory.ledger.growth(account) == {"generate": 2 * GIB}


def test_the_tighter_memory_is_the_hosts() -> None:
    """A cgroup's limit where it leaves less than the host has."""
    memory, used = memory_of(), Point("system.memory.usage", 4 * GIB, (("system.memory.state", "used"),))
    memory.measured([Measurement("host", S, (Point("system.memory.limit", 16 * GIB), used))])
    of_host = memory.host
    of_cgroup = Point("rl.container.memory.limit", 8 * GIB), Point("container.memory.usage", 6 * GIB)
    memory.measured([Measurement("cgroup", 2 * S, of_cgroup), Measurement("host", 3 * S, (used,))])

    assert of_host == HostMemory(16 * GIB, 12 * GIB)
    assert memory.host == HostMemory(8 * GIB, 2 * GIB)


def test_a_process_in_a_cgroup_of_its_own() -> None:
    """Its limit is tighter than that of the machine, and is of no other process."""
    memory = memory_of()
    memory.basis.state.journals["rank1"] = Journal(started(1))
    memory.host = HostMemory(64 * GIB, 50 * GIB)
    rank = (("rl.process.scope", "tree"), ("rl.rank", 1))
    limit, usage = Point("rl.container.memory.limit", GIB, rank), Point("container.memory.usage", GIB // 4, rank)
    memory.measured([Measurement("processes", S, (limit, usage))])
    limits = [
        memory._limits(Account(name, "host_tree"), memory.basis.state.journals[name]) for name in ("rank0", "rank1")
    ]

    assert limits == [(64 * GIB, 50 * GIB), (GIB, 3 * GIB // 4)]

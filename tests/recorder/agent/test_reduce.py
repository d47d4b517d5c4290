"""The reducer: records in, rows and spans out."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Event, Span, Table
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, Logged, Record, SpanEnded, SpanStarted, StepStarted, Tabled
from tests import samples
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, started, step


def test_a_row_leaves_when_the_next_step_begins() -> None:
    """Until then something may still be logged for the step, such as its evaluation."""
    reducer = reducing()
    before = feed(reducer, "a", started(), *step(0, 0, Logged(0, 1, {"x": 1.0})), Logged(0, 2 * S, {"eval": 2.0}))
    after = feed(reducer, "a", StepStarted(1, 3 * S, b""))

    assert rows(before) == []
    assert [row.values for row in rows(after)] == [
        {"x": 1.0, "eval": 2.0, "time/step": 1.0, "perf/steps_per_second": 1.0}
    ]


def test_tables_that_come_late_are_numbered_also_by_the_next_agent() -> None:
    """The first table of a step is part 0; what comes late counts up, behind a restart of the agent too."""
    reducer = reducing()
    first = feed(reducer, "a", started(), *step(0, 0), Tabled(0, 1, "t", ["x"], [(1,)]), *step(1, 2 * S))
    second = feed(reducer, "a", Tabled(0, 2, "t", ["x"], [(2,)]), *step(2, 4 * S))
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(reducer.state), type=State)
    again = reducing(state=saved)
    late = Tabled(0, 3, "t", ["x"], [(3,)]), Tabled(0, 3, "t", ["y"], [(4,)])
    third = feed(again, "a", *late, *step(3, 6 * S))

    parts = [(one.rows[0][0], one.part) for one in [*first, *second, *third] if isinstance(one, Table)]
    assert parts == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_tables_of_one_name_and_other_columns_are_numbered() -> None:
    """Two ranks record a table of one name with different columns."""
    reducer = reducing()
    feed(reducer, "a", started(), *step(0, 0), Tabled(0, 1, "t", ["x"], [(1,)]), Tabled(0, 1, "t", ["y"], [(1,)]))
    found = feed(reducer, "a", Tabled(0, 1, "u", ["x"], [(1,)]), StepStarted(1, 2 * S, b""))

    parts = [(one.name, one.columns, one.part) for one in found if isinstance(one, Table)]
    assert parts == [("t", ("x",), 0), ("t", ("y",), 1), ("u", ("x",), 0)]


def test_a_lost_process_ends_its_spans_with_an_error() -> None:
    """Phase and step end as `rl.process.lost`; the event names rank, step and phase; no time is made up."""
    reducer = reducing()
    open_phase = SpanStarted(7, 8, bytes(16), 0, "generate", 5, b"")
    items = feed(reducer, "a", started(3), StepStarted(0, 0, b""), open_phase, Logged(0, 6, {"x": 1.0}), Lost(9))

    assert [(span.name, span.error) for span in items if isinstance(span, Span)] == [
        ("rl.sample", "rl.process.lost"),
        ("rl.loop", "rl.process.lost"),
    ]
    event = next(item for item in items if isinstance(item, Event))
    assert (event.name, event.rank, event.step) == ("rl.process.lost", 3, 0)
    assert event.attributes == {
        "rl.phase": "generate",
        "rl.process.phases": ["generate"],
        "host.name": "host",
        "rl.process.down.order": 1,
    }
    assert rows(items)[0].values == {"x": 1.0}


def test_processes_that_go_down_together() -> None:
    """The first one is named in the events of the others; each has its last step, and why it died."""
    reducer = reducing()
    for rank in range(2):
        feed(reducer, f"rank{rank}", started(rank, local=2), *step(4, rank * S, logged(4, loss=1)))
    lost = [("rank1", Lost(30 * S, "signal", 137)), ("rank0", Lost(20 * S, "oom_kill", 137))]
    events = [item for item in reducer.feed(lost).items if isinstance(item, Event)]
    said = ["rl.process.cause", "process.exit.code", "rl.process.down.order", "rl.process.down.first"]

    assert [(one.rank, one.step, *map(one.attributes.get, said)) for one in events] == [
        (0, 4, "oom_kill", 137, 1, None),
        (1, 4, "signal", 137, 2, "rank 0"),
    ]


@st.composite
def _recordings(draw: st.DrawFn) -> list[tuple[str, Record]]:
    """Two ranks that log, in any interleaving."""
    queues: dict[str, list[Record]] = {}
    for rank, name in enumerate("ab"):
        records: list[Record] = [started(rank, local=2)]
        for n in range(draw(st.integers(1, 6))):
            phase = SpanStarted(n + 1, 9, bytes(16), n, "generate", n * S, b"")
            body: list[Record] = [phase, Logged(n, n * S + 1, {"x": float(n + rank)}), SpanEnded(n + 1, n * S + 2, b"")]
            records += step(n, n * S, *body) if draw(st.booleans()) else [Logged(n, n * S, {"x": 1.0})]
        queues[name] = [*records, Finished(99 * S) if draw(st.booleans()) else Lost(99 * S)]
    order: list[tuple[str, Record]] = []
    while any(queues.values()):
        name = draw(st.sampled_from([name for name, queue in queues.items() if queue]))
        order.append((name, queues[name].pop(0)))
    return order


@settings(max_examples=samples.of(40, 200))
@given(_recordings(), st.data())
def test_going_on_from_a_checkpoint_changes_nothing(recording: list[tuple[str, Record]], data: st.DataObject) -> None:
    """An agent that dies anywhere and starts from its last checkpoint makes what one that lives makes."""
    cut = data.draw(st.integers(0, len(recording)))
    whole = reducing()
    expected = [*whole.feed(recording[:cut]).items, *whole.feed(recording[cut:]).items]
    first = reducing()
    actual = first.feed(recording[:cut]).items
    saved = msgspec.msgpack.encode(first.state)
    second = reducing({}, msgspec.msgpack.decode(saved, type=State), saved=first.analyses.snapshots())
    actual += second.feed(recording[cut:]).items

    assert actual == expected


@settings(max_examples=samples.of(40, 200))
@given(_recordings())
def test_every_step_is_one_row_in_order(recording: list[tuple[str, Record]]) -> None:
    """Whatever the interleaving: each step that was logged is one row that is not late, and they ascend."""
    reducer = reducing()
    items = [item for record in recording for item in reducer.feed([record]).items]
    on_time = [row.step for row in rows(items) if not row.late]
    logged = {record.step for _, record in recording if isinstance(record, (Logged, StepStarted))}

    assert on_time == sorted(logged)


def test_ranks_of_another_machine_that_are_heard_of_late() -> None:
    """The head waits for them, though all ranks of its own machine have finished; not longer than the deadline."""
    quick = [*step(0, 0, logged(0, loss=1.0)), Finished(3 * S)]
    slow = [*step(0, S, logged(0, loss=3.0)), Finished(4 * S)]
    head, alone = reducing(whole_world=True), reducing(whole_world=True)
    early = [feed(each, "rank0", started(0, local=2), *quick) + each.tick(5 * S).items for each in (head, alone)]
    late = feed(head, "rank1@other", started(1, local=2), *slow)

    assert [rows(items) for items in early] == [[], []]
    assert [row.values["loss"] for row in rows(late)] == [2.0]
    assert [row.values["loss"] for row in rows(alone.tick(60 * S).items)] == [1.0]
    assert (head.is_finished, alone.is_finished) == (True, False)

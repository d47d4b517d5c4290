"""Events of steps, processes and attempts that end badly: through the reducer alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl import semconv
from otel_rl.export import Ended, Event, Item, Span, identity
from otel_rl.recorder.agent.output.presence import points
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import Parts, State
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import Finished, Happened, Logged, SpanStarted, StepEnded, StepStarted
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, started, step

BOOM = Finished(9 * S, "failed", ("builtins.RuntimeError", "boom"), 1)
TERMINATED = Finished(9 * S, "cancelled", ("SIGTERM", "Terminated"), 143)
LATER = msgspec.structs.replace(TERMINATED, time=10 * S)
SLURM = "SIGKILL: was canceled or preempted by Slurm"


def ends(items: Sequence[Item]) -> list[Ended]:
    return [item for item in items if isinstance(item, Ended)]


def events(items: Sequence[Item]) -> list[Event]:
    return [item for item in items if isinstance(item, Event)]


def two_ranks() -> Reducer:
    reducer = reducing()
    reducer.feed([(f"rank{rank}", started(rank, local=2)) for rank in (0, 1)])
    return reducer


def inside(n: int, at: int) -> list[StepStarted | Logged]:
    return [StepStarted(n, at, b""), Logged(n, at + 1, {"x": 1.0})]


def test_rows_of_a_step_are_numbered() -> None:
    """The first is part 0, late ones count up, each step its own; no two rows have one identity."""
    reducer = reducing()
    items = feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), *step(1, 2 * S, logged(1, x=1.0)))
    for n in range(3):
        items += feed(reducer, "a", logged(0, late=float(n)), *step(n + 2, 4 * S))
    items += feed(reducer, "a", logged(1, late=1.0), *step(9, 9 * S))

    assert [row.part for row in rows(items) if row.step == 0] == [0, 1, 2, 3]
    assert [row.part for row in rows(items) if row.step == 1] == [0, 1]
    assert len({identity(row) for row in rows(items)}) == len(rows(items))


@given(st.lists(st.integers(0, 600), max_size=1500))
def test_no_number_is_given_twice(steps: list[int]) -> None:
    """The memory of late steps is bounded, and yet no number of a step is used again, also over restarts."""
    parts, given_ = Parts(), set()
    for n, number in enumerate(steps):
        if n % 100 == 0:
            parts = msgspec.msgpack.decode(msgspec.msgpack.encode(parts), type=Parts)
        part = parts.next(number)
        assert part > 0
        assert (number, part) not in given_
        given_.add((number, part))
    assert len(parts.last) <= 256


@pytest.mark.parametrize("end", [Lost(9 * S), BOOM, TERMINATED])
def test_a_step_that_a_death_cut_off_is_partial(end: Lost | Finished) -> None:
    """The rank that died inside the step is missing in its row, though it had logged; the step before is whole."""
    reducer = two_ranks()
    for rank in ("rank0", "rank1"):
        feed(reducer, rank, *step(0, 0, logged(0, x=1.0)))
    feed(reducer, "rank0", *inside(1, 2 * S), StepEnded(1, 3 * S, b""))
    items = feed(reducer, "rank1", *inside(1, 2 * S), end)
    items += feed(reducer, "rank0", Finished(10 * S))

    assert [(row.step, row.partial, row.missing_ranks) for row in rows(items)] == [(0, False, ()), (1, True, (1,))]


def test_a_step_that_the_last_exception_left_is_partial() -> None:
    """`with run.step(1)` ends the step as the exception passes; the process ends with it, so values may be missing."""
    reducer = reducing()
    error = ("builtins.RuntimeError", "boom")
    feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), *inside(1, 2 * S))
    items = feed(reducer, "a", StepEnded(1, 3 * S, b"", error=error), BOOM)

    assert [(row.step, row.partial) for row in rows(items)] == [(1, True)]


def test_a_step_whose_exception_was_caught_is_whole() -> None:
    """The trainer went on, so nothing died inside of it."""
    reducer = reducing()
    failed = StepEnded(1, 3 * S, b"", error=("builtins.KeyError", "x"))
    items = feed(reducer, "a", started(), *inside(1, 2 * S), failed, *step(2, 4 * S, logged(2, x=1.0)), BOOM)

    assert [(row.step, row.partial) for row in rows(items)] == [(1, False), (2, False)]


def test_a_rank_that_failed_is_missing_in_later_rows() -> None:
    """It is not over as it should be, so what follows is without it."""
    reducer = two_ranks()
    for rank in ("rank0", "rank1"):
        feed(reducer, rank, *step(0, 0, logged(0, x=1.0)))
    feed(reducer, "rank1", BOOM)
    items = feed(reducer, "rank0", *step(1, 9 * S, logged(1, x=1.0)), Finished(20 * S))

    assert [(row.step, row.missing_ranks) for row in rows(items)] == [(0, ()), (1, (1,))]


def test_open_spans_of_a_process_that_failed_have_its_error() -> None:
    """Whatever was open when the exception ended the process."""
    reducer = reducing()
    begun = SpanStarted(7, 8, bytes(16), 0, "generate", 5, b"")
    items = feed(reducer, "a", started(), *inside(0, 0), begun, BOOM)

    assert {span.error for span in items if isinstance(span, Span)} == {"builtins.RuntimeError: boom"}


def test_an_attempt_that_finished() -> None:
    """Its end comes after its last row, once."""
    reducer = reducing()
    items = feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), Finished(2 * S))

    assert items[-1] == Ended(2 * S, 0, "finished")
    assert ends(reducer.tick(99 * S).items + reducer.feed([]).items) == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (BOOM, Finished(9 * S), ("failed", "rank 0: builtins.RuntimeError: boom", 1)),
        (BOOM, Lost(10 * S), ("failed", "rank 0: builtins.RuntimeError: boom; rank 1: was killed or disappeared", 1)),
        (Lost(10 * S), Finished(11 * S), ("lost", "rank 0: was killed or disappeared", 255)),
        (Lost(10 * S, "signal", 137), Finished(11 * S), ("lost", "rank 0: was killed by SIGKILL", 137)),
        (BOOM, LATER, ("failed", "rank 0: builtins.RuntimeError: boom", 1)),
        (TERMINATED, LATER, ("cancelled", "rank 0: SIGTERM: Terminated; rank 1: SIGTERM: Terminated", 143)),
        (
            TERMINATED,
            Lost(39 * S, "signal", 137),
            ("cancelled", "rank 0: SIGTERM: Terminated; rank 1: was killed by SIGKILL", 143),
        ),
        (Lost(9 * S, "slurm", 137), Lost(9 * S, "slurm", 137), ("cancelled", f"rank 0: {SLURM}; rank 1: {SLURM}", 137)),
    ],
)
def test_the_first_that_ended_badly(first: Finished, second: Finished, expected: tuple[str, str, int]) -> None:
    """The attempt ends as the rank did that ended badly first: a launcher stops the others, which are not blamed."""
    reducer = two_ranks()
    items = feed(reducer, "rank0", *inside(0, 0), first) + feed(reducer, "rank1", *inside(0, 0), second)
    (end,) = ends(items)

    assert (end.outcome, end.error, end.exit_code) == expected


def test_a_helper_that_is_stopped_does_not_fail_the_run() -> None:
    """Whoever started a process with a role may end it as they like."""
    reducer = reducing()
    feed(reducer, "reward", started(role="reward"), SpanStarted(7, 0, bytes(16), None, "score", 5, b""))
    items = feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), Finished(5 * S))
    items += feed(reducer, "reward", TERMINATED)

    assert [(end.outcome, end.error) for end in ends(items)] == [("finished", "")]


def test_a_helper_that_took_the_ranks_with_it_is_named_first() -> None:
    """The reward server died, then the trainer got an exception of it."""
    reducer = reducing()
    feed(reducer, "reward", started(role="reward"), SpanStarted(7, 0, bytes(16), None, "score", 5, b""), Lost(3 * S))
    (end,) = ends(feed(reducer, "a", started(), *inside(0, 0), BOOM))

    assert (end.outcome, end.error) == (
        "failed",
        "reward 0: was killed or disappeared; rank 0: builtins.RuntimeError: boom",
    )


def test_an_end_is_taken_back() -> None:
    """A journal that was taken for dead is written again: later the attempt ends again, as it then does."""
    reducer = reducing()
    first = feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), Lost(5 * S))
    second = feed(reducer, "a", *step(1, 6 * S, logged(1, x=2.0)), Finished(9 * S))

    assert [end.outcome for end in ends(first)] == ["lost"]
    assert [end.outcome for end in ends(second)] == ["finished"]
    assert [(row.step, row.part) for row in rows(second)] == [(1, 0)]
    assert reducer.state.journals["a"].time.spent["", ""] == 9 * S


def test_a_machine_that_is_switched_off() -> None:
    """No record reports its end: 30 s after everything else has ended it counts as lost; a new record revives it."""
    head = reducing(whole_world=True)
    head.feed([("rank0", started(0, local=2)), ("rank1@other", started(1, local=2))], S)
    inside_ = [("rank1@other", record) for record in inside(0, 0)]
    done = [("rank0", record) for record in (*step(0, 0, logged(0, x=1.0)), Finished(2 * S))]
    items = head.feed([*inside_, *done], 2 * S).items + head.tick(31 * S).items
    late = head.tick(33 * S).items
    again = head.feed([("rank1@other", StepEnded(0, 40 * S, b"")), ("rank1@other", Finished(41 * S))], 50 * S).items

    assert ends(items) == []
    assert [(end.outcome, end.error) for end in ends(late)] == [("lost", "rank 1: was killed or disappeared")]
    assert [row.missing_ranks for row in rows(items)] == [(1,)]
    assert [end.outcome for end in ends(again)] == ["finished"]


def test_an_end_that_was_read_after_a_death() -> None:
    """The last record of a process that was taken for dead is its word; no time is counted twice."""
    reducer = reducing()
    items = feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), Lost(5 * S))
    items += feed(reducer, "a", Finished(6 * S))

    assert [end.outcome for end in ends(items)] == ["lost", "finished"]
    assert reducer.state.journals["a"].time.spent["", ""] == 6 * S


def test_a_helper_that_was_idle_and_lives_again() -> None:
    """A process with a role that was taken for dead while it did nothing is a part of the attempt again."""
    reducer = reducing()
    items = feed(reducer, "reward", started(role="reward"), Lost(3 * S))
    items += feed(reducer, "reward", Revived(4 * S), *step(0, 4 * S, logged(0, x=1.0)), Finished(6 * S))

    assert [end.time_unix_nano for end in ends(items)] == [3 * S, 6 * S]
    assert reducer.state.journals["reward"].time.spent["", ""] == 6 * S


def test_the_end_of_a_second_attempt() -> None:
    """Each attempt ends once."""
    reducer = reducing()
    items = feed(reducer, "a", started(), *step(0, 0, logged(0, x=1.0)), Lost(5 * S))
    items += feed(reducer, "b", started(attempt=1), *step(0, 6 * S, logged(0, x=1.0)), Finished(9 * S))

    assert [(end.attempt, end.outcome) for end in ends(items)] == [(0, "lost"), (1, "finished")]


def test_a_slow_start_takes_the_end_back() -> None:
    """A rank that begins after the other one has finished: the attempt ends again with the later one."""
    reducer = reducing()
    items = feed(reducer, "rank0", started(0, local=2), *step(0, 0, logged(0, x=1.0)), Finished(2 * S))
    items += feed(reducer, "rank1", started(1, local=2), *step(0, 3 * S, logged(0, x=3.0)), BOOM)

    assert [(end.time_unix_nano, end.outcome) for end in ends(items)] == [(2 * S, "finished"), (9 * S, "failed")]
    assert items[-1] == ends(items)[-1]


def test_rows_of_an_attempt_come_before_those_of_the_next() -> None:
    """Rank 0 is started again before the last records of its earlier journal were read."""
    reducer = reducing()
    feed(reducer, "old", started(), *step(0, 0, logged(0, x=1.0)), *inside(1, 2 * S))
    early = feed(reducer, "new", started(attempt=1), *step(1, 5 * S, logged(1, x=5.0)), *step(2, 7 * S))
    late = feed(reducer, "old", Lost(4 * S))

    assert [(row.attempt, row.step) for row in rows(early)] == [(0, 0)] or rows(early) == []
    assert [(row.attempt, row.step, row.partial) for row in rows(late)][:2] == [(0, 1, True), (1, 1, False)]


def test_a_helper_that_was_started_again_makes_no_attempt() -> None:
    """The reward server's second start belongs to the ranks' first one: its rows do not void the rows of the ranks."""
    reducer = reducing()
    feed(reducer, "a", started(), StepStarted(0, 0, b""))
    feed(reducer, "reward0", started(role="reward"), Lost(1))
    feed(reducer, "reward1", started(role="reward", attempt=1), logged(0, score=1.0))
    items = feed(reducer, "a", Logged(0, 1, {"x": 1.0}), StepEnded(0, S, b""), StepStarted(1, 2 * S, b""))
    items += feed(reducer, "reward1", logged(1, score=2.0))
    items += feed(reducer, "a", StepEnded(1, 3 * S, b""), Finished(3 * S)) + feed(reducer, "reward1", Finished(4 * S))

    assert [(row.attempt, row.step, row.values["score"]) for row in rows(items)] == [(0, 0, 1.0), (0, 1, 2.0)]
    assert [end.attempt for end in ends(items)] == [0]


def test_a_dead_reward_server_is_not_rank_0() -> None:
    """Events about a process say its role and its host."""
    reducer = reducing()
    feed(reducer, "a", started(), *inside(0, 0))
    open_ = SpanStarted(7, 0, bytes(16), None, "score", 5, b"")
    nonfinite = Logged(0, 6, {"loss": float("nan")})
    told = Happened(semconv.EVENT_MEMORY_EXHAUSTED, 7, {semconv.PHASE: "score"}, 0)
    items = feed(reducer, "reward", started(2, role="reward"), open_, nonfinite, told, Lost(9, "oom_kill"))

    assert [(event.name, event.rank) for event in events(items)] == [
        ("rl.numerics.nonfinite", 2),
        ("rl.memory.exhausted", 2),
        ("rl.process.lost", 2),
    ]
    assert all(event.attributes[semconv.ROLE] == "reward" for event in events(items))
    assert all(event.attributes[semconv.HOST_NAME] == "host" for event in events(items))


def test_the_first_of_many_that_go_down() -> None:
    """The order is that of the last signs of life, whatever the order in which the deaths are seen."""
    reducer = reducing()
    reducer.feed([(f"rank{rank}", started(rank, local=4)) for rank in range(4)])
    for rank, last in enumerate((5, 3, 4, 6)):
        feed(reducer, f"rank{rank}", *inside(0, last * S))
    deaths = [("rank0", Lost(9 * S)), ("rank2", Lost(9 * S)), ("rank1", Lost(9 * S)), ("rank3", Lost(8 * S))]
    items = reducer.feed(deaths).items
    told = {event.rank: event.attributes[semconv.PROCESS_DOWN_ORDER] for event in events(items)}
    found = points(reducer.state.journals.values(), Vocabulary("auto"), 99 * S)
    down = {dict(one.attributes)[semconv.RANK]: one.value for one in found if "down" in one.metric}

    assert told == {3: 1, 1: 2, 2: 3, 0: 4}
    assert down == {3: 8.0, 1: 9.0, 2: 9.0, 0: 9.0}


def test_a_failure_is_told_with_its_error() -> None:
    """A process that ended with an exception is an event too, in the same order as those that died."""
    reducer = two_ranks()
    feed(reducer, "rank0", *inside(0, 0))
    feed(reducer, "rank1", *inside(0, 0))
    items = reducer.feed([("rank0", Lost(9 * S)), ("rank1", msgspec.structs.replace(BOOM, time=8 * S))]).items

    assert [(event.name, event.rank, event.attributes[semconv.PROCESS_DOWN_ORDER]) for event in events(items)] == [
        ("rl.process.failed", 1, 1),
        ("rl.process.lost", 0, 2),
    ]
    assert events(items)[0].attributes[semconv.ERROR_TYPE] == "builtins.RuntimeError"


def test_no_more_than_64_are_shown_as_down() -> None:
    """Four thousand ranks that go down are not four thousand series; the first ones are there."""
    reducer = reducing()
    for rank in range(100):
        feed(reducer, f"rank{rank}", started(rank, local=100), *inside(0, rank * S), Lost((100 + rank) * S))
    found = points(reducer.state.journals.values(), Vocabulary("auto"), 999 * S)

    assert [one.value for one in found if "down" in one.metric] == [100.0 + rank for rank in range(64)]


def test_going_on_after_any_record_changes_nothing() -> None:
    """Ends, numbers and marks are the same whenever the agent is killed and started again."""
    records = [("rank0", started(0, local=2)), ("rank1", started(1, local=2))]
    for n in range(3):
        records += [(f"rank{rank}", record) for rank in (0, 1) for record in step(n, 2 * n * S, logged(n, x=1.0))]
    records += [("rank0", logged(0, late=1.0)), ("rank1", logged(0, late=2.0))]
    records += [("rank0", record) for record in inside(3, 9 * S)]
    records += [("rank1", BOOM), ("rank0", Lost(12 * S)), ("rank0", Finished(13 * S))]
    whole = reducing()
    expected = [item for record in records for item in whole.feed([record]).items]
    actual: list[Item] = []
    state = State()
    for record in records:
        actual += (reducer := reducing({}, state)).feed([record]).items
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(reducer.state), type=State)

    assert actual == expected
    assert ends(actual)

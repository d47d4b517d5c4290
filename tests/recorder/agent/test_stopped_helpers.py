"""Processes with a role that end without a report: which of them died, and which were stopped because the run ended."""

from __future__ import annotations

import msgspec
import pytest

from otel_rl.export import Ended, Event, Process
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import Finished, SpanStarted
from tests.recorder.agent.reducing import S, feed, logged, reducing, started, step

KILLED = Lost(10 * S, "signal", 137)
UNKNOWN = Lost(10 * S)
TERMINATED = Finished(10 * S, "cancelled", ("SIGTERM", "Terminated"), 143)
EXITED = Lost(10 * S, "exit", 1)  # as Ray ends an actor
OUT_OF_MEMORY = Lost(10 * S, "oom_kill", 137)
SEGFAULT = Finished(10 * S, "crashed", ("SIGSEGV", "Segmentation fault"), 139)
RAISED = Finished(10 * S, "failed", ("builtins.ValueError", "no"), 1)
BOOM = ("builtins.RuntimeError", "boom")
GENERATE = SpanStarted(7, 0, bytes(16), None, "generate", 9 * S, b"")

Said = tuple[str, str, int]
"""Outcome, cause and exit code."""


def begun(*more: SpanStarted) -> Reducer:
    """Return a reducer with a rank inside of its run, and a rollout process."""
    reducer = reducing()
    feed(reducer, "rank0", started(), *step(0, 0, logged(0, x=1.0)))
    feed(reducer, "rollout", started(role="rollout"), *more)
    return reducer


def said_of(reducer: Reducer, now: int) -> tuple[list[Said], list[str]]:
    """Return what is exported of the rollout process that has ended by a time, and the names of events."""
    items = reducer.tick(now).items
    ends = [one for one in items if isinstance(one, Process) and one.role and one.outcome]
    return [(str(one.outcome), one.cause, one.exit_code) for one in ends], [
        one.name for one in items if isinstance(one, Event)
    ]


@pytest.mark.parametrize("inside", [(), (GENERATE,)])
@pytest.mark.parametrize(
    ("end", "said", "events"),
    [
        (KILLED, ("lost", "signal", 137), ["rl.process.lost"]),
        (UNKNOWN, ("lost", "", 255), ["rl.process.lost"]),
        (TERMINATED, ("cancelled", "", 143), []),
        (EXITED, ("failed", "exit", 1), ["rl.process.failed"]),
    ],
)
def test_a_helper_that_dies_while_ranks_go_on(
    end: Lost | Finished, said: Said, events: list[str], inside: tuple[SpanStarted, ...]
) -> None:
    """It has died, whether it did something or not; four seconds tell that from the end of the run."""
    reducer = begun(*inside)
    reducer.feed([("rollout", end)], 10 * S)

    assert said_of(reducer, 13 * S) == ([], [])
    assert said_of(reducer, 14 * S) == ([said], events)
    assert said_of(reducer, 99 * S) == ([], [])


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (OUT_OF_MEMORY, ("lost", "oom_kill", 137)),
        (SEGFAULT, ("crashed", "", 139)),
        (RAISED, ("failed", "", 1)),
        (Lost(10 * S, "exit", 0), ("finished", "exit", 0)),
        (Lost(10 * S, "exec"), ("lost", "exec", 255)),
    ],
)
def test_an_end_that_no_creator_brings_about(end: Lost | Finished, said: Said) -> None:
    """It is clear at once, also at the end of a run: the kernel, a fault or an exception, or nothing is wrong."""
    for is_ending in (False, True):
        reducer = begun()
        if is_ending:
            feed(reducer, "rank0", Finished(9 * S))
        items = reducer.feed([("rollout", end)], 10 * S).items
        (exported,) = (one for one in items if isinstance(one, Process) and one.role)

        assert (exported.outcome, exported.cause, exported.exit_code) == said


@pytest.mark.parametrize("inside", [(), (GENERATE,)])
@pytest.mark.parametrize("end", [KILLED, UNKNOWN, TERMINATED, EXITED])
@pytest.mark.parametrize("finishes_at", [2 * S, 9 * S, 13 * S])
def test_a_helper_that_is_stopped_as_the_run_ends(
    end: Lost | Finished, finishes_at: int, inside: tuple[SpanStarted, ...]
) -> None:
    """Its creator stops it after the last rank has finished, or within seconds before: nobody is accused."""
    reducer = begun(*inside)
    records = [("rollout", end), ("rank0", Finished(finishes_at))]
    items = [item for record in sorted(records, key=lambda one: one[1].time) for item in reducer.feed([record]).items]
    (exported,) = (one for one in items if isinstance(one, Process) and one.role and one.outcome)

    assert (exported.outcome, exported.cause, exported.error) == ("finished", "stopped", "")
    assert [(one.outcome, one.error) for one in items if isinstance(one, Ended)][-1] == ("finished", "")
    assert not [one for one in items if isinstance(one, Event)]
    assert reducer.is_finished


def test_a_helper_that_dies_long_before_the_end() -> None:
    """A run that finishes without it has finished; that it died stays."""
    reducer = begun()
    reducer.feed([("rollout", KILLED)], 10 * S)
    reducer.tick(14 * S)
    items = reducer.feed([("rank0", Finished(60 * S))], 60 * S).items

    assert [one.outcome for one in items if isinstance(one, Ended)] == ["finished"]
    assert reducer.state.journals["rollout"].outcome == "lost"


def test_an_early_end_of_one_rank_excuses_no_death() -> None:
    """An hour after one of several ranks had finished, the run was not ending."""
    reducer = reducing()
    feed(reducer, "rank0", started(0, local=2), *step(0, 0, logged(0, x=1.0)), Finished(2 * S))
    feed(reducer, "rank1", started(1, local=2), *step(0, 0, logged(0, x=1.0)))
    feed(reducer, "rollout", started(role="rollout"))
    reducer.feed([("rollout", Lost(3602 * S, "signal", 137))], 3602 * S)

    assert said_of(reducer, 3606 * S) == ([("lost", "signal", 137)], ["rl.process.lost"])


def test_one_of_several_ranks_has_finished() -> None:
    """The others are about to: a helper that is stopped between their ends is not accused."""
    reducer = reducing()
    feed(reducer, "rank0", started(0, local=2), *step(0, 0, logged(0, x=1.0)), Finished(9 * S))
    feed(reducer, "rank1", started(1, local=2), *step(0, 0, logged(0, x=1.0)))
    feed(reducer, "rollout", started(role="rollout"), KILLED)

    assert reducer.state.journals["rollout"].cause == "stopped"


@pytest.mark.parametrize(("end", "cause"), [(KILLED, "stopped"), (TERMINATED, ""), (EXITED, "stopped")])
def test_a_helper_that_is_stopped_after_a_rank_has_failed(end: Lost | Finished, cause: str) -> None:
    """The end of the run is the failure of the rank; its helpers are cancelled, and not named."""
    reducer = begun()
    items = feed(reducer, "rank0", Finished(9 * S, "failed", BOOM, 1))
    items += feed(reducer, "rollout", end)

    assert (reducer.state.journals["rollout"].outcome, reducer.state.journals["rollout"].cause) == ("cancelled", cause)
    assert [(one.outcome, one.error) for one in items if isinstance(one, Ended)] == [
        ("failed", "rank 0: builtins.RuntimeError: boom")
    ]


def test_a_pool_that_is_stopped_with_each_step() -> None:
    """Workers that SIGTERM ended are not the first that went down when a rank fails at last."""
    reducer = begun()
    reducer.feed([("rollout", TERMINATED)], 10 * S)
    reducer.tick(14 * S)
    items = reducer.feed([("rank0", Finished(99 * S, "failed", BOOM, 1))], 99 * S).items
    (down,) = (one for one in items if isinstance(one, Event))

    assert down.attributes["rl.process.down.order"] == 1
    assert [one.error for one in items if isinstance(one, Ended)] == ["rank 0: builtins.RuntimeError: boom"]


def test_helpers_alone_that_are_cancelled() -> None:
    """Without ranks, the attempt has the outcome of the helpers."""
    reducer = reducing()
    feed(reducer, "rollout", started(role="rollout"))
    items = feed(reducer, "rollout", TERMINATED)

    assert [(one.outcome, one.error) for one in items if isinstance(one, Ended)] == [
        ("cancelled", "rollout 0: SIGTERM: Terminated")
    ]


def test_a_helper_that_took_the_rank_with_it() -> None:
    """It is the first that went down, and not one that was stopped."""
    reducer = begun()
    reducer.feed([("rollout", KILLED)], 10 * S)
    items = reducer.feed([("rank0", Finished(11 * S, "failed", BOOM, 1))], 11 * S).items
    downs = {one.name: one.attributes["rl.process.down.order"] for one in items if isinstance(one, Event)}

    assert downs == {"rl.process.lost": 1, "rl.process.failed": 2}
    assert [one.error for one in items if isinstance(one, Ended)] == [
        "rollout 0: was killed by SIGKILL; rank 0: builtins.RuntimeError: boom"
    ]


def test_a_process_with_a_role_without_ranks() -> None:
    """Nothing says that the run was ending: its death is one at once."""
    reducer = reducing()
    feed(reducer, "rollout", started(role="rollout"))
    items = feed(reducer, "rollout", KILLED)

    assert [one.outcome for one in items if isinstance(one, Ended)] == ["lost"]


def test_a_helper_on_another_machine() -> None:
    """Its own agent says how it died; the head decides by the ranks of all machines."""
    head = reducing(whole_world=True)
    head.feed([("rank0", started()), ("rollout@other", started(role="rollout"))], S)
    head.feed([("rollout@other", KILLED)], 10 * S)

    assert said_of(head, 14 * S) == ([("lost", "signal", 137)], ["rl.process.lost"])


def test_a_helper_that_another_process_has_replaced() -> None:
    """The death stays in the records, with its own line; the new process runs."""
    reducer = begun()
    reducer.feed([("rollout", KILLED)], 10 * S)
    feed(reducer, "again", started(role="rollout"))
    outcomes, _ = said_of(reducer, 14 * S)

    assert outcomes == [("lost", "signal", 137)]
    assert [one.over for name, one in reducer.state.journals.items() if name != "rank0"] == [True, False]


def test_a_helper_that_was_taken_for_dead() -> None:
    """A record of it within four seconds takes the end back, and nobody hears of it."""
    reducer = begun()
    reducer.feed([("rollout", UNKNOWN)], 10 * S)
    reducer.feed([("rollout", logged(1, x=1.0))], 11 * S)

    assert said_of(reducer, 99 * S) == ([], [])
    assert not reducer.state.journals["rollout"].over


def test_a_restart_of_the_agent_while_an_end_waits() -> None:
    """The next agent decides as the first one would have."""
    reducer = begun()
    reducer.feed([("rollout", KILLED)], 10 * S)
    saved = msgspec.msgpack.encode(reducer.state)
    for finish, said in ((None, ("lost", "signal", 137)), (Finished(12 * S), ("finished", "stopped", 137))):
        again = reducing({}, msgspec.msgpack.decode(saved, type=State))
        again.feed([("rollout", UNKNOWN)], 11 * S)  # it finds the lock free, and knows no cause
        if finish is not None:
            again.feed([("rank0", finish)], 12 * S)
        again.tick(14 * S)
        journal = again.state.journals["rollout"]

        assert (journal.outcome, journal.cause, journal.exit_code) == said


def test_a_revival_of_a_helper_that_had_died() -> None:
    """The cause and the place of its death are taken back."""
    reducer = begun()
    reducer.feed([("rollout", UNKNOWN)], 10 * S)
    reducer.tick(14 * S)
    reducer.feed([("rollout", Revived(20 * S))], 20 * S)
    journal = reducer.state.journals["rollout"]

    assert (journal.over, journal.cause, journal.exit_code, journal.order) == (False, "", 0, 0)

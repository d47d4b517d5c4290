"""Where the time of the workers went."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.analyses.goodput import GoodputAnalysis
from otel_rl.analyses.goodput.time_spent import Goodput
from otel_rl.analysis import LoopTurn
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, Logged, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.recorder.trainer.tickets import consumed
from tests.recorder.agent.reducing import S, feed, reducing, rows, started


class Phase(NamedTuple):
    """A phase of a worker, in seconds."""

    name: str
    begin: float
    end: float
    part: str = ""
    told: dict[str, int] | None = None
    step: int | None = None

    def records(self, span_id: int, kind: int | None = None) -> list[tuple[float, Record]]:
        """Return its records, each with when it is written."""
        begin, end = round(self.begin * S), round(self.end * S)
        begun = SpanStarted(span_id, 0, bytes(16), self.step, self.name, begin, b"", kind, None, self.part)
        return [(self.begin, begun), (self.end, SpanEnded(span_id, end, b"", dict(self.told or {})))]


def recorded(phases: list[Phase], until: float, kind: int | None = None) -> list[Record]:
    """Return the records of a process that begins at 0 and ends as it should."""
    found = [record for n, phase in enumerate(phases) for record in phase.records(n + 1, kind)]
    return [record for _, record in sorted(found, key=lambda one: one[0])] + [Finished(round(until * S))]


def totals(goodput: GoodputAnalysis | Goodput) -> dict[tuple[str, str], float]:
    """Return the seconds by fleet and category."""
    points = ((dict(point.attributes), point.value) for point in goodput.points())
    found = {(str(told["rl.role"]), str(told["rl.goodput.category"])): value for told, value in points}
    return {key: value for key, value in found.items() if value}


def spent(until: float, *phases: Phase) -> dict[str, float]:
    """Return the seconds of one rank by category."""
    reducer = reducing()
    feed(reducer, "a", started(), *recorded(list(phases), until))
    return {category: seconds for (_, category), seconds in totals(reducer.analyses.by_name["goodput"]).items()}


def test_a_worker() -> None:
    """Each phase counts as what it is; what is in none is unaccounted."""
    found = spent(
        20,
        Phase("generate", 0, 8),
        Phase("wait", 8, 9),
        Phase("update_actor", 9, 14),
        Phase("weight_sync", 14, 16),
        Phase("my_own", 16, 17),
    )

    assert found == {"productive": 13.0, "idle": 1.0, "overhead": 2.0, "unclassified": 1.0, "unaccounted": 3.0}


def test_the_innermost_phase_counts() -> None:
    """A moment counts once, however many phases are open: loading states is overhead of a productive phase."""
    found = spent(10, Phase("train_step", 0, 10), Phase("train_step", 0.5, 3.5, "onload"), Phase("wait", 5, 6))

    assert found == {"overhead": 3.0, "idle": 1.0, "productive": 6.0}


def test_wasted_tokens_waste_their_share() -> None:
    """Of rollouts of which a quarter was aborted or stale, a quarter of the time was wasted."""
    told = {"tokens": 1000, "wasted_tokens": 250}

    assert spent(8, Phase("generate", 0, 8, told=told)) == {"productive": 6.0, "wasted": 2.0}


def test_time_between_steps_belongs_to_the_later_one() -> None:
    """Nothing is missing between two steps; what was before the first one is in none."""
    reducer = reducing()
    reducer.feed([("a", started())])
    found = []
    for step, (begun, ended) in enumerate(((5, 10), (15, 20), (20, 21))):
        span = SpanStarted(1, 0, b"", step, "generate", begun * S, b""), SpanEnded(1, ended * S, b"")
        items = feed(reducer, "a", StepStarted(step, begun * S, b""), *span, StepEnded(step, ended * S, b""))
        found += [row.values["perf/goodput"] for row in rows(items)]

    assert found == [1.0, 0.5]
    assert sum(totals(reducer.analyses.by_name["goodput"]).values()) == 21.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["generate", "weight_sync", "wait", "unknown"]),
            st.integers(0, 15),
            st.integers(1, 15),
            st.integers(0, 15),
            st.integers(0, 10),
        ),
        max_size=60,
    )
)
def test_it_closes(given_: list[tuple[str, int, int, int, int]]) -> None:
    """However the phases of 16 workers nest and overlap: over all categories it is wall time times workers."""
    reducer = reducing()
    for worker in range(16):
        told = [one for one in given_ if one[3] == worker]
        phases = [Phase(name, a, a + n, told={"tokens": 10, "wasted_tokens": w}) for name, a, n, _, w in told]
        role = "rollout" if worker % 2 else ""
        feed(reducer, f"worker{worker}", started(worker, role=role), *recorded(phases, 30))
    found = totals(reducer.analyses.by_name["goodput"])

    assert sum(found.values()) == pytest.approx(16 * 30, rel=1e-9)
    assert sum(seconds for (fleet, _), seconds in found.items() if fleet == "rollout") == pytest.approx(8 * 30)
    assert min(found.values()) >= 0


def test_fleets_are_told_apart() -> None:
    """Ranks of the trainer, and processes with a role, which need not mark steps."""
    reducer = reducing()
    feed(reducer, "a", started(), Finished(4 * S))
    feed(reducer, "b", started(role="reward_server"), *recorded([Phase("reward", 0, 2)], 3))

    assert totals(reducer.analyses.by_name["goodput"]) == {
        ("trainer", "unaccounted"): 4.0,
        ("reward_server", "productive"): 2.0,
        ("reward_server", "unaccounted"): 1.0,
    }


def test_dropped_trajectories_are_wasted_time() -> None:
    """At what a token costs on average: of 400 tokens in 8 s, 100 are too old. A rollout without phases is sampling."""
    reducer = reducing()
    trajectories = [Phase("rl.trajectory", n, n + 2, told={"rl.trajectory.tokens": 100}) for n in (0, 2, 4, 6)]
    feed(reducer, "b", started(role="rollout"), *recorded(trajectories, 10, kind=0))
    dropped = list(consumed([{"policy_version": 1, "tokens": 100}], 0, S, 9, "stale", pytest.fail))
    feed(reducer, "a", started(), StepStarted(0, 0, b""), *dropped, StepEnded(0, S, b""), StepStarted(1, S, b""))

    assert totals(reducer.analyses.by_name["goodput"]) == {
        ("rollout", "productive"): 6.0,
        ("rollout", "wasted"): 2.0,
        ("rollout", "unaccounted"): 2.0,
        ("trainer", "unaccounted"): 1.0,
    }


@pytest.mark.parametrize(("logged", "expected"), [({}, 0.75), ({"perf/goodput": 0.5}, 0.5)])
def test_it_is_in_the_row(logged: dict[str, float], expected: float) -> None:
    """By the framework's own names of phases; like every other metric that the trainer logs, it is not derived then."""
    phase = SpanStarted(1, 0, b"", 0, "gen", 0, b""), SpanEnded(1, 3 * S, b"")
    step = StepStarted(0, 0, b""), *phase, Logged(0, 3 * S, logged), StepEnded(0, 4 * S, b"")
    (row,) = rows(feed(reducing(dialect="verl"), "a", started(), *step, StepStarted(1, 4 * S, b"")))

    assert row.values["perf/goodput"] == expected


def hang(reducer: Reducer, until: int) -> None:
    """Let the agent look at ranks that record nothing."""
    for second in range(20, until, 20):
        reducer.analyses.tick(LoopTurn(second * S, float(second), (), False))


def begun(name: str, at: float, step: int = 0) -> SpanStarted:
    return SpanStarted(1, 0, bytes(16), step, name, round(at * S), b"")


def test_a_hang_is_hung_time() -> None:
    """Of all ranks, in whatever they are, since the first one came to where it hangs; not of the phase."""
    reducer = reducing(stalled_after=60)
    reducer.feed([("rank0", started(0, local=2)), ("rank1", started(1, local=2))])
    for rank, comes in enumerate((10, 12)):
        feed(reducer, f"rank{rank}", StepStarted(0, 0, b""), begun("update_actor", 0))
        feed(reducer, f"rank{rank}", SpanEnded(1, comes * S, b""), begun("weight_sync", comes))
    hang(reducer, 1000)
    for rank in (0, 1):
        feed(reducer, f"rank{rank}", SpanEnded(1, 1000 * S, b""), StepEnded(0, 1010 * S, b""))
    (row,) = rows(reducer.feed([(f"rank{rank}", StepStarted(1, 1010 * S, b"")) for rank in (0, 1)]).items)
    known = {one.name: one.seconds for one in reducer.analyses.now()["recent_shares"]}

    assert known == {"update_actor": 20.0, "hung": 1980.0, "": 20.0}
    assert totals(reducer.analyses.by_name["goodput"]) == {
        ("trainer", "productive"): 22.0,
        ("trainer", "hung"): 1978.0,  # the 2 s in which rank 1 worked on were counted before the hang was known
        ("trainer", "unaccounted"): 20.0,
    }
    assert row.values["perf/goodput"] == 22 / 2020


def test_a_step_that_was_closed_before_its_hang_was_known() -> None:
    """The time of its ranks in the hang is hung time too: the shares of the last steps sum to their time."""
    reducer = reducing(stalled_after=60)
    reducer.feed([("rank0", started(0, local=2)), ("rank1", started(1, local=2))])
    feed(reducer, "rank0", StepStarted(0, 0, b""), begun("generate", 0), SpanEnded(1, 10 * S, b""))
    feed(reducer, "rank0", begun("update_actor", 10))
    feed(reducer, "rank1", StepStarted(0, 0, b""), begun("generate", 0), SpanEnded(1, 10 * S, b""))
    feed(reducer, "rank1", begun("update_actor", 10), SpanEnded(1, 14 * S, b""), StepEnded(0, 14 * S, b""))
    reducer.tick(0)
    closed = reducer.tick(60 * S)
    hang(reducer, 1000)
    feed(reducer, "rank0", SpanEnded(1, 1000 * S, b""), StepEnded(0, 1000 * S, b""), StepStarted(1, 1000 * S, b""))
    known = {one.name: one.seconds for one in reducer.analyses.now()["recent_shares"]}

    assert [row.step for row in rows(closed.items)] == [0]
    assert known == {"generate": 20.0, "hung": 1980.0}


def test_a_rank_that_hangs_alone() -> None:
    """While another rank goes on, the run does not hang: its time stays that of the phase."""
    reducer = reducing(stalled_after=60)
    reducer.feed([("rank0", started(0, local=2)), ("rank1", started(1, local=2))])
    feed(reducer, "rank0", StepStarted(0, 0, b""), begun("update_actor", 0))
    feed(reducer, "rank1", StepStarted(0, 0, b""))
    for second in range(20, 1000, 20):
        feed(reducer, "rank1", *(begun("generate", second), SpanEnded(1, second * S, b"")))
        reducer.analyses.tick(LoopTurn(second * S, float(second), (), False))
    feed(reducer, "rank0", SpanEnded(1, 1000 * S, b""))

    assert ("trainer", "hung") not in totals(reducer.analyses.by_name["goodput"])


def test_an_agent_that_is_started_again_in_a_hang() -> None:
    """It knows the hang of the agent before it."""
    first = reducing(stalled_after=60)
    feed(first, "rank0", started(), StepStarted(0, 0, b""), begun("update_actor", 10))
    hang(first, 500)
    again = reducing(stalled_after=60, state=first.state, saved=first.analyses.snapshots())
    feed(again, "rank0", SpanEnded(1, 1000 * S, b""))

    assert totals(again.analyses.by_name["goodput"]) == {("trainer", "hung"): 990.0, ("trainer", "unaccounted"): 10.0}


def test_a_step_in_which_a_process_died() -> None:
    """It was not done: it is none of the last steps, however long its phases were."""
    reducer = reducing()
    reducer.feed([("rank0", started(0, local=2)), ("rank1", started(1, local=2))])
    for number, end in ((0, 10), (1, 50)):
        for rank in (0, 1):
            feed(reducer, f"rank{rank}", StepStarted(number, (end - 9) * S, b""), begun("generate", end - 9, number))
            is_over = number and rank
            ended = [] if is_over else [SpanEnded(1, end * S, b""), StepEnded(number, end * S, b"")]
            feed(reducer, f"rank{rank}", *ended)
    feed(reducer, "rank1", Lost(50 * S, "signal", 137))
    feed(reducer, "rank0", StepStarted(2, 50 * S, b""))

    assert [one.seconds for one in reducer.analyses.now()["recent_shares"]] == [18.0]


def test_where_the_time_went() -> None:
    """Phases have their categories; what is outside of them is in none."""
    reducer = reducing()
    phases = [Phase("generate", 0, 0.6, step=0), Phase("update_actor", 0.6, 0.9, step=0)]
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""), *recorded(phases, 1)[:-1], StepEnded(0, S, b""))
    feed(reducer, "rank0", StepStarted(1, S, b""))
    shown = reducer.analyses.now()

    assert [msgspec.structs.astuple(one) for one in shown["recent_shares"]] == [
        ("generate", "rollout", 0.6),
        ("update_actor", "training", 0.3),
        ("", "none", 0.1),
    ]
    assert shown["last"] == {"rank0": shown["recent_shares"]}

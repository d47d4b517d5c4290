"""When a step closes: random histories against the oracle, and the cases that it is about, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Ended
from otel_rl.journal.record_events import Lost
from otel_rl.journal.records import Finished, Logged, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from tests.agent.reducing import S, feed, logged, reducing, rows, started, step
from tests.agent.step_oracle import Made, Moment, Oracle

if TYPE_CHECKING:
    from otel_rl.agent.steps.reduce import Reducer
    from otel_rl.export import Row

RANKS = ("0", "1", "sampler")


class Action(NamedTuple):
    """The next act of a process, this many seconds later; `ahead` is how far from its last step."""

    who: str
    kind: str
    ahead: int
    after: float


_ACTIONS = st.builds(
    Action,
    st.sampled_from(RANKS),
    st.sampled_from(["begin", "begin", "end", "end", "log", "log", "phase", "finish", "die", "again"]),
    st.sampled_from([0, 0, 1, 1, 1, 1, 2, 5, -1, 1000]),
    st.sampled_from([0.5, 0.5, 0.5, 0.5, 4.0, 11.0, 30.0]),
)


class History:
    """Plays actions to the reducer and to the oracle, and leaves out those that are impossible."""

    def __init__(self) -> None:
        self._reducer = reducing({"x": "sum"})
        self._oracle = Oracle()
        self._now, self._count = 0.0, 0
        self._starts = dict.fromkeys(RANKS, -1)
        self._at: dict[str, int] = {}
        self._inside: dict[str, int] = {}
        self._over = set(RANKS)
        self.actual: list[Made] = []
        self.expected: list[Made] = []

    def play(self, action: Action) -> None:
        """Let time pass, and then a process act."""
        self._wait(action.after)
        who, inside = action.who, self._inside.get(action.who)
        if who in self._over:
            if action.kind != "again":
                return
            self._starts[who] += 1
            self._over.remove(who)
            rank, role = (int(who), "") if who.isdecimal() else (0, who)
            self._do(who, "start", started(rank, local=0, role=role))
            return
        number = max(0, self._at.get(who, -1) + action.ahead)
        self._count += 1
        time = int(self._now * S)
        match action.kind:
            case "begin" if inside is None:
                self._inside[who] = self._at[who] = number
                self._do(who, "begin", StepStarted(number, time, b""), at=number)
            case "end" if inside is not None:
                del self._inside[who]
                self._do(who, "end", StepEnded(inside, time + 1, b""), at=inside)
            case "log":
                if who not in self._inside:
                    self._at[who] = number
                self._do(who, "log", Logged(number, time, {"x": float(self._count)}), at=number, value=self._count)
            case "phase" if inside is not None:
                begun = SpanStarted(self._count, 0, bytes(16), inside, "generate", time, b"")
                ended = SpanEnded(self._count, time + self._count * S, b"")
                self._do(who, "phase", begun, ended, at=inside, value=self._count)
            case "finish" | "die":
                self._over.add(who)
                self._inside.pop(who, None)
                end = Finished(time) if action.kind == "finish" else Lost(time)
                self._do(who, action.kind, end, at=-1 if inside is None else inside)

    def end(self) -> None:
        """Let every process finish."""
        for who in RANKS:
            self.play(Action(who, "finish", 0, 0.5))

    def _do(self, who: str, kind: str, *records: Record, at: int = -1, value: float = 0.0) -> None:
        process = f"{who}.{self._starts[who]}"
        made = self._reducer.feed([(process, record) for record in records], int(self._now * S))
        self.actual += map(_made, rows(made.items))
        self.expected += self._oracle.add(Moment(self._now, process, kind, at, value))

    def _wait(self, seconds: float) -> None:
        self._now += seconds
        self.actual += map(_made, rows(self._reducer.tick(int(self._now * S)).items))
        self.expected += self._oracle.wait(self._now)


def _made(row: Row) -> Made:
    return Made(row.step, row.late, row.values.get("x"), row.values.get("time/generate"))


def _holds(actions: list[Action]) -> None:
    history = History()
    for who in RANKS:
        history.play(Action(who, "again", 0, 0.5))
    for action in actions:
        history.play(action)
        assert history.actual == history.expected
    history.end()
    assert history.actual == history.expected


@given(st.lists(_ACTIONS, max_size=40))
def test_steps_close_as_the_oracle_says(actions: list[Action]) -> None:
    """Two ranks and a sampler begin, end, log, jump, die, come back alone and pause in any order."""
    _holds(actions)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(st.lists(_ACTIONS, max_size=60))
def test_ten_thousand_histories(actions: list[Action]) -> None:
    """The same, often."""
    _holds(actions)


def _step_at(n: int, begin: float, end: float) -> list[Record]:
    """Return a step whose phase takes all of its time."""
    phase = SpanStarted(n + 1, 0, bytes(16), n, "train", int(begin * S), b"")
    return [
        StepStarted(n, int(begin * S), b""),
        phase,
        Logged(n, int(end * S), {"loss": float(n)}),
        SpanEnded(n + 1, int(end * S), b""),
        StepEnded(n, int(end * S), b""),
    ]


def _train(reducer: Reducer, steps: range, now: float, pause: float = 12.0) -> list[Row]:
    """Feed steps of 3 s, each after a pause, as they happen, with a tick of the agent each second."""
    found: list[Row] = []
    for n in steps:
        for record in _step_at(n, now + pause, now + pause + 3):
            time = getattr(record, "time", 0)
            while now + 1 < time / S:
                now += 1
                found += rows(reducer.tick(int(now * S)).items)
            now = time / S
            found += rows(reducer.feed([("rank0", record)], time).items)
    return found


def _check_whole(found: list[Row], steps: range) -> None:
    """Check that each step is one row, in order, with the time of its phase."""
    own = [row for row in found if "loss" in row.values or "time/train" in row.values]
    assert [(row.step, row.part, row.values.get("time/train")) for row in own] == [(n, 0, 3.0) for n in steps]


@pytest.mark.parametrize("role", ["", "rollout"])
def test_a_rollout_process_that_is_ahead_takes_no_phase_times(role: str) -> None:
    """It logs with `step=` for steps that the trainer begins half a minute later."""
    reducer = reducing()
    feed(reducer, "rank0", started(local=0))
    feed(reducer, "other", started(1, local=0, role=role))
    found: list[Row] = []
    for n in range(20):
        found += rows(feed(reducer, "other", Logged(n + 2, n * 15 * S, {"reward": 1.0})))
        found += _train(reducer, range(n, n + 1), n * 15.0)
    found += rows(feed(reducer, "other", Finished(400 * S)) + feed(reducer, "rank0", Finished(400 * S)))

    _check_whole(found, range(20))


def test_a_thread_that_samples_ahead_takes_no_phase_times() -> None:
    """Another thread of the trainer logs for the next steps while the trainer is inside one."""
    reducer = reducing()
    feed(reducer, "rank0", started(local=0))
    found: list[Row] = []
    for n in range(40):
        found += rows(feed(reducer, "rank0", Logged(n + 1, n * 15 * S, {"sampled": 1.0})))
        found += _train(reducer, range(n, n + 1), n * 15.0)
        found += rows(feed(reducer, "rank0", Logged(n + 1, n * 15 * S, {"more": 1.0})))
    found += rows(feed(reducer, "rank0", Finished(700 * S)))

    assert [row.step for row in found if row.part] == []
    _check_whole(found, range(40))


def test_an_evaluation_before_the_first_step_belongs_to_it() -> None:
    """`log({"eval/acc": …}, step=0)`, then 13 s of loading, then step 0: one row has both."""
    reducer = reducing()
    early = feed(reducer, "rank0", started(local=0), Logged(0, 0, {"eval/acc": 0.5}))
    early += reducer.tick(12 * S).items
    found = rows(early) + _train(reducer, range(2), 13.0, 0.0)

    assert [(row.step, row.part, row.values["eval/acc"], row.values["time/train"]) for row in found] == [
        (0, 0, 0.5, 3.0)
    ]


@pytest.mark.parametrize("stray", [1_000_000, 3])
@pytest.mark.parametrize("marks", [True, False])
def test_a_stray_number_costs_at_most_itself(stray: int, marks: bool) -> None:
    """A step gets the number of tokens once, by `step` or by `log`: every other step is one row with its times."""
    reducer = reducing()
    tokens = Logged(stray, 150 * S, {"tokens": 5.0})
    feed(reducer, "rank0", started(local=0))
    found = _train(reducer, range(10), 0.0)
    found += rows(feed(reducer, "rank0", *step(stray, 150 * S, tokens) if marks else [tokens]))
    found += _train(reducer, range(10, 20), 151.0) + rows(feed(reducer, "rank0", Finished(400 * S)))

    _check_whole([row for row in found if "tokens" not in row.values], range(20))
    assert [(row.step, row.values["tokens"]) for row in found if "tokens" in row.values] == [(stray, 5.0)]


def test_a_stray_number_of_a_process_that_marks_no_steps() -> None:
    """A trainer that only logs, once for 1,000,000: the steps after it are rows of their own, none is late."""
    reducer = reducing()
    numbers = [0, 1, 2, 1_000_000, 3, 4, 5]
    found = feed(reducer, "rank0", started(local=0))
    for at, n in enumerate(numbers):
        found += feed(reducer, "rank0", Logged(n, at * 20 * S, {"x": float(at)}))
        found += reducer.tick((at * 20 + 15) * S).items
    found += feed(reducer, "rank0", Finished(200 * S))

    assert sorted((row.step, row.part) for row in rows(found)) == sorted((n, 0) for n in numbers)


def test_a_process_that_returns_from_a_hang_loses_no_facts() -> None:
    """Rank 1 hangs in step 0 for a minute: the first row leaves without it, a further row has its values and times."""
    reducer = reducing()
    feed(reducer, "rank0", started(0, local=2), *_step_at(0, 0, 1), StepStarted(1, S, b""))
    feed(
        reducer, "rank1", started(1, local=2), StepStarted(0, 0, b""), SpanStarted(9, 0, bytes(16), 0, "train", 0, b"")
    )
    first = rows(reducer.tick(20 * S).items)
    feed(reducer, "rank1", logged(0, loss=8.0), SpanEnded(9, 60 * S, b""), StepEnded(0, 60 * S, b""))
    second = rows(feed(reducer, "rank1", StepStarted(1, 61 * S, b"")))

    facts = [
        (row.part, row.missing_ranks, *map(row.values.get, ("loss", "time/train", "time/step")))
        for row in first + second
    ]
    assert facts == [(0, (1,), 0.0, 1.0, 1.0), (1, (), 8.0, 60.0, 60.0)]


def test_a_rank_that_comes_back_alone_is_counted_once() -> None:
    """Rank 1 dies in step 3 and comes back in the same attempt: all later rows are means of both ranks."""
    reducer = reducing()
    reducer.feed([(f"rank{n}", started(n, local=2)) for n in (0, 1)])
    found: list[Row] = []
    for n in range(20):
        again = "rank1" if n < 3 else "rank1 again"
        if n == 3:
            feed(reducer, "rank1", StepStarted(3, 3 * S, b""), logged(3, loss=100.0), Lost(3 * S))
            feed(reducer, again, started(1, local=2))
        for rank, name in enumerate(("rank0", again)):
            found += rows(feed(reducer, name, *step(n, n * S, logged(n, loss=float(rank)))))
    ends = feed(reducer, "rank0", Finished(30 * S)) + feed(reducer, "rank1 again", Finished(30 * S))
    found += rows(ends)

    assert [(row.step, row.values["loss"], row.missing_ranks, row.partial) for row in found] == [
        (n, 0.5, (), False) for n in range(20)
    ]
    assert reducer.is_finished
    assert [end.outcome for end in ends if isinstance(end, Ended)] == ["finished"]

"""When a step closes: random histories against the oracle, and the cases that it is about, by name."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Ended, Row
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, Logged, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from tests import samples
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, started, step
from tests.recorder.agent.step_oracle import Made, Moment, Oracle

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

    def __init__(self, world: int) -> None:
        self._reducer = reducing({"x": "sum"})
        self._world, self._oracle = world, Oracle(world)
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
            self._do(who, "start", started(rank, local=self._world, role=role))
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
                # Other deaths of a sampler wait until it is known whether the run was ending (test_stopped_helpers.py).
                end = Finished(time) if action.kind == "finish" else Lost(time, cause="oom_kill")
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
    logged, phase = row.values.get("x"), row.values.get("time/generate")
    return Made(row.step, row.late, logged, phase, row.missing_ranks, row.partial)


def _holds(actions: list[Action], world: int = 0) -> list[Made]:
    """Return the rows of actions, which are those of the oracle."""
    history = History(world)
    for who in RANKS if not world else ():
        history.play(Action(who, "again", 0, 0.5))
    for action in actions:
        history.play(action)
        assert history.actual == history.expected
    history.end()
    assert history.actual == history.expected
    return history.actual


@given(st.lists(_ACTIONS, max_size=40), st.sampled_from([0, 2]))
def test_steps_close_as_the_oracle_says(actions: list[Action], world: int) -> None:
    """Two ranks and a sampler start, begin, end, log, jump, die, come back alone and pause in any order.

    They may start one after the other, and then a rank that starts late or never is waited for.
    """
    _holds(actions, world)


@pytest.mark.slow
@settings(max_examples=samples.of(2_000, 10_000))
@given(st.lists(_ACTIONS, max_size=60), st.sampled_from([0, 2]))
def test_thousands_of_histories(actions: list[Action], world: int) -> None:
    """The same, often; `ALL_SAMPLES=1` takes 10,000."""
    _holds(actions, world)


BEGIN = Action("0", "begin", 1, 12.0)
STEP = [BEGIN, Action("0", "phase", 0, 3.0), Action("0", "log", 0, 0.5), Action("0", "end", 0, 0.5)]
"""A step of rank 0, 12 s after the one before."""


def _stray(ahead: int, *kinds: str) -> list[Action]:
    """Return ten steps, acts for a number far ahead, and ten steps that go on where the first ones ended."""
    acts = [Action("0", kind, 0 if n else ahead, 0.5) for n, kind in enumerate(kinds)]
    return [*STEP * 10, *acts, BEGIN._replace(ahead=1 - ahead), *STEP[1:], *STEP * 9]


@pytest.mark.parametrize(
    ("actions", "stray"),
    [
        pytest.param([Action("sampler", "log", 2, 0.5), *STEP] * 20, [], id="a sampler that gets ahead"),
        pytest.param([Action("1", "log", 2, 0.5), *STEP] * 20, [], id="a rank that marks no steps and gets ahead"),
        pytest.param([*STEP[:3], Action("0", "log", 1, 0.5), STEP[3]] * 20, [], id="a thread that logs ahead"),
        pytest.param(
            [Action("0", "log", 1, 0.5), BEGIN._replace(ahead=0), *STEP[1:], *STEP * 19],
            [],
            id="an evaluation before the first step",
        ),
        pytest.param(_stray(3, "log"), [], id="a value for a step that comes later"),
        pytest.param(_stray(10**6, "log"), [10**6 + 9], id="a value whose step is a number of tokens"),
        pytest.param(_stray(10**6, "begin", "log", "end"), [10**6 + 9], id="a step whose number is one of tokens"),
    ],
)
def test_no_number_takes_phase_times_away(actions: list[Action], stray: list[int]) -> None:
    """Whatever is logged ahead or by mistake: each step of the trainer is one row with its times, and none is late."""
    found = _holds(actions)

    of_trainer = [(row.step, row.late, row.phase is None) for row in found if row.step < 20]
    assert of_trainer == [(n, False, False) for n in range(20)]
    assert [row.step for row in found if row.step > 1000] == stray


def test_a_stray_number_of_a_process_that_marks_no_steps() -> None:
    """A trainer that only logs, once for 1,000,000: the steps after it are rows of their own, none is late."""
    aheads = [1, 1, 1, 10**6, 1 - 10**6, 1, 1]
    found = _holds([Action("0", "log", ahead, 20.0) for ahead in aheads])

    assert sorted((row.step, row.late) for row in found) == [(n, False) for n in (0, 1, 2, 3, 4, 5, 10**6 + 2)]


def test_a_process_that_returns_from_a_hang_loses_no_facts() -> None:
    """Rank 1 hangs in step 0 for a minute: the first row leaves without it, a further row has its values and times.

    In huggingface/trl#7310, that was a deadlock.
    """
    reducer = reducing()
    feed(reducer, "rank0", started(0, local=2), *step(0, 0, logged(loss=0.0)), StepStarted(1, S, b""))
    feed(reducer, "rank1", started(1, local=2), StepStarted(0, 0, b""))
    found = rows(reducer.tick(20 * S).items)
    found += rows(feed(reducer, "rank1", logged(loss=8.0), StepEnded(0, 60 * S, b""), StepStarted(1, 61 * S, b"")))

    facts = [(row.part, row.missing_ranks, row.values["loss"], row.values["time/step"]) for row in found]
    assert facts == [(0, (1,), 0.0, 1.0), (1, (), 8.0, 60.0)]


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

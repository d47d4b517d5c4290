"""Which attempt a process belongs to on the head, of machines that see only their own ranks.

The two sentences: an attempt is one start of the training; it begins with the first process that starts while none of
its ranks is running, and lasts until all of them have ended. A process that starts while an attempt runs belongs to it.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, Logged, Record, Started
from tests import samples
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, step

MACHINE = {0: "", 1: "@b", 2: "@b", 3: "@c"}
"""The machine of each rank; rank 0 is on the head's."""


class Action(NamedTuple):
    """A rank starts if it does not run, or ends if it does; 4: a new start of all of them."""

    rank: int
    is_killed: bool
    after: int


_ACTIONS = st.lists(st.builds(Action, st.integers(0, 4), st.booleans(), st.integers(1, 9)), max_size=25)
_DELAYS = st.fixed_dictionaries({"": st.just(0.0), "@b": st.floats(0, 20), "@c": st.floats(0, 20)})


class History:
    """The events on all machines, and the attempts that follow from the two sentences."""

    def __init__(self, delays: dict[str, float]) -> None:
        self._delays, self._now = delays, 100.0
        self._running: dict[int, str] = {}
        self._of_machine: dict[str, int] = {}
        self._attempt = -1
        self.expected: dict[str, int] = {}
        self.sent: list[tuple[float, str, Record]] = []

    def play(self, action: Action) -> None:
        """Let time pass, and then a rank start or end, or all of them end and start again."""
        self._now += action.after
        if action.rank < 4:
            (self._end if action.rank in self._running else self._start)(action.rank, is_killed=action.is_killed)
            return
        for rank in list(self._running):
            self._end(rank, is_killed=True)
        self._now += 3
        for rank in range(4):
            self._start(rank)
            self._now += 0.25

    @property
    def running(self) -> list[str]:
        """The journals of the ranks that run."""
        return [*self._running.values()]

    def log(self) -> None:
        """Let each rank that runs log something."""
        self._now += 1
        for rank, name in self._running.items():
            self._send(MACHINE[rank], name, Logged(0, int(self._now * S), {"x": 1.0}))

    def _start(self, rank: int, *, is_killed: bool = False) -> None:
        machine = MACHINE[rank]
        if not self._running:
            self._attempt += 1
        if not any(MACHINE[other] == machine for other in self._running):
            self._of_machine[machine] = self._of_machine.get(machine, -1) + 1
        own = self._of_machine[machine]
        name = f"rank{rank}.attempt{own}.{len(self.expected):x}{machine}"
        self._running[rank] = name
        self.expected[name] = self._attempt
        self._send(machine, name, Started("run", own, rank, 4, 0, "", 1, machine, 4096, int(self._now * S)))

    def _end(self, rank: int, *, is_killed: bool) -> None:
        time = int(self._now * S)
        self._send(MACHINE[rank], self._running.pop(rank), Lost(time) if is_killed else Finished(time))

    def _send(self, machine: str, name: str, record: Record) -> None:
        self.sent.append((self._now + self._delays[machine], name, record))


def _played(actions: list[Action], delays: dict[str, float]) -> tuple[History, dict[str, int]]:
    """Return a history, and the attempts on the head when all of it has arrived and each live rank has logged."""
    history = History(delays)
    for action in actions:
        history.play(action)
    history.log()
    head = reducing(whole_world=True)
    for arrived, name, record in sorted(history.sent, key=lambda one: one[0]):
        head.feed([(name, record)], int(arrived * S))
    return history, {name: journal.started.attempt for name, journal in head.state.journals.items()}


def _in_order(attempts: dict[str, int]) -> list[set[str]]:
    """Return the processes of each attempt, in order: the head's own numbers may have gaps."""
    return [{name for name, one in attempts.items() if one == n} for n in sorted({*attempts.values()})]


def _check_together(actions: list[Action], delays: dict[str, float]) -> None:
    history, actual = _played(actions, delays)
    last = {name for name, attempt in history.expected.items() if attempt == max(history.expected.values())}

    assert len({actual[name] for name in history.running}) <= 1
    if history.running:
        assert {name for name, attempt in actual.items() if attempt == max(actual.values())} <= last


@given(_ACTIONS)
def test_the_head_decides_as_the_sentences_say(actions: list[Action]) -> None:
    """Ranks of three machines start, end, come back alone and start again together."""
    history, actual = _played(actions, dict.fromkeys(("", "@b", "@c"), 0.0))

    assert _in_order(actual) == _in_order(history.expected)


@given(_ACTIONS, _DELAYS)
def test_those_who_train_together_are_together(actions: list[Action], delays: dict[str, float]) -> None:
    """Records arrive up to 20 s late: all live ranks end up in one attempt, and in it is nobody of an earlier start."""
    _check_together(actions, delays)


@pytest.mark.slow
@settings(max_examples=samples.of(2_000, 10_000))
@given(_ACTIONS, _DELAYS)
def test_thousands_of_histories(actions: list[Action], delays: dict[str, float]) -> None:
    """The same, often, with delays and without; `ALL_SAMPLES=1` takes 10,000."""
    _check_together(actions, delays)
    history, actual = _played(actions, dict.fromkeys(("", "@b", "@c"), 0.0))
    assert _in_order(actual) == _in_order(history.expected)


def test_a_machine_whose_only_rank_comes_back_alone() -> None:
    """It counts another attempt, since it sees nobody else; on the head the attempt goes on, with means of both."""
    head = reducing(whole_world=True)
    names = ["rank0.attempt0.a", "rank1.attempt0.b@b"]
    found = []
    for rank, name in enumerate(names):
        found += feed(head, name, Started("run", 0, rank, 2, 1, "", 1, "host", 4096, rank * S))
    for n in range(60):
        if n == 20:
            found += feed(head, names[1], Lost(n * 10 * S))
            names[1] = "rank1.attempt1.c@b"
            found += feed(head, names[1], Started("run", 1, 1, 2, 1, "", 1, "host", 4096, (n * 10 + 1) * S))
        for rank, name in enumerate(names):
            found += feed(head, name, *step(n, (n * 10 + 2) * S, logged(n, loss=float(rank))))
    for name in names:
        found += feed(head, name, Finished(700 * S))

    assert [(row.attempt, row.step, row.values["loss"]) for row in rows(found)] == [(0, n, 0.5) for n in range(60)]
    assert head.is_finished

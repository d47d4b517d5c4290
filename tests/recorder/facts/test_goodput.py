"""Where the wall time of a run went: whatever happened, all of it is there."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.facts.goodput import HUNG, TRAINED, AttemptTime, counts_as, everywhere, goodput, joined

SHARES = {"rollout": 0.5, "training": 0.25, "sync": 0.15, "none": 0.1}


class _Drawn(NamedTuple):
    attempts: list[AttemptTime]
    hung: list[tuple[int, int]]


@st.composite
def _runs(draw: st.DrawFn) -> _Drawn:
    """Return attempts one after the other, each with steps, and hangs anywhere."""
    attempts, now = [], draw(st.integers(0, 100))
    for _ in range(draw(st.integers(1, 4))):
        began = now + draw(st.integers(0, 50))
        first = began + draw(st.integers(0, 20))
        in_steps, repeated, between = (draw(st.integers(0, 200)) for _ in range(3))
        last = first + in_steps + repeated + between
        now = last + draw(st.integers(0, 100))
        has_steps = draw(st.booleans())
        attempt = AttemptTime(
            began, now, first, last, in_steps, repeated, draw(st.sampled_from(["between", "end", "open"]))
        )
        attempts.append(attempt if has_steps else AttemptTime(began, now, None, began, 0))
    begins = draw(st.lists(st.tuples(st.integers(0, now + 50), st.integers(1, 300)), max_size=4))
    return _Drawn(attempts, joined((began, began + lasts) for began, lasts in begins))


@given(_runs())
def test_it_closes(run: _Drawn) -> None:
    """Attempts, down time, first steps, repeated steps and hangs sum to 1, and nothing is negative."""
    parts = goodput(run.attempts, run.hung, SHARES)

    assert not parts or sum(parts.values()) == pytest.approx(1)
    assert all(part > 0 for part in parts.values())


@given(_runs())
def test_hangs_are_hung(run: _Drawn) -> None:
    """Their time counts once, and never as trained."""
    parts = goodput(run.attempts, run.hung, SHARES)
    without = goodput(run.attempts, [], SHARES)
    hung = sum(ended - began for began, ended in run.hung)

    assert (hung > 0) == (HUNG in parts)
    assert parts.get(TRAINED, 0.0) <= without.get(TRAINED, 0.0) + 1e-9


def test_a_run_that_hung() -> None:
    """Of 18 minutes in steps, 15 hung: what trained is a part of the other three."""
    whole = AttemptTime(0, 1080, 0, 1080, 1080)

    assert goodput([whole], [(100, 1000)], {"training": 1.0}) == pytest.approx({HUNG: 900 / 1080, TRAINED: 180 / 1080})


def test_a_hang_that_lasts() -> None:
    """Its step has not closed, so that it comes on top of the steps that have."""
    known = AttemptTime(0, 180, 0, 180, 180)

    assert goodput([known], [(180, 1080)], {"training": 1.0}) == pytest.approx({HUNG: 900 / 1080, TRAINED: 180 / 1080})


def test_a_resumed_run() -> None:
    """Time before first steps, repeated steps, and down time have parts of their own."""
    first = AttemptTime(0, 100, 10, 90, 60, 20, "end")
    second = AttemptTime(150, 250, 160, 250, 90)
    parts = goodput([first, second], [], {"rollout": 1.0})

    assert parts == pytest.approx(
        {"start": 0.08, "end": 0.04, "repeated": 0.08, "down": 0.2, TRAINED: 0.6},
    )


@pytest.mark.parametrize(
    ("name", "category"),
    [
        (("generate", ""), "productive"),
        (("train_step", "onload"), "overhead"),
        (("train_step", "my_part"), "productive"),
        (("wait_for_rollouts", ""), "idle"),
        (("save_checkpoint", ""), "overhead"),
        (("my_own", ""), "unclassified"),
        (("", ""), "unaccounted"),
    ],
)
def test_time_of_phases(name: tuple[str, str], category: str) -> None:
    """A part with a category of its own counts as that; a name that nobody knows as unclassified."""
    assert counts_as(name) == category


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_joined_intervals(intervals: list[tuple[int, int]]) -> None:
    """They cover the same instants, in order, without an overlap."""
    found = joined(intervals)

    assert {i for a, b in found for i in range(a, b)} == {i for a, b in intervals for i in range(a, b)}
    assert all(before[1] < after[0] for before, after in pairwise(found))


def test_hangs_of_several_machines() -> None:
    """A run hangs while all of them do: since the first one does, until one goes on."""
    first, second = [(10, 50), (70, 80)], [(15, 40), (90, 95)]

    assert everywhere([first, second]) == everywhere([second, first]) == [(10, 40)]
    assert everywhere([first]) == first
    assert everywhere([first, []]) == everywhere([]) == []

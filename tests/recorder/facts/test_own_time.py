"""The own time of phases: boundaries as they come and spans that are read back give the same, and all of it closes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.facts.own_time import OUTSIDE, PhaseInterval, ProcessTime, closed, own_times

_PHASES = ("generate", "train", "reward")


@st.composite
def intervals(draw: st.DrawFn) -> list[PhaseInterval]:
    """Return phases that nest, overlap as those of threads and tasks do, or end after their parent."""
    moments = draw(st.permutations(range(draw(st.integers(0, 12)) * 2)))
    pairs = [sorted(moments[place : place + 2]) for place in range(0, len(moments), 2)]
    return [PhaseInterval(began * 10, ended * 10, number) for number, (began, ended) in enumerate(pairs)]


def by_instants(spans: list[PhaseInterval], first: int, last: int) -> list[int]:
    """Return the own times by looking at each instant, as the rule says."""
    own = [0] * len(spans)
    for instant in range(first, last):
        open_ = [place for place, span in enumerate(spans) if span.began <= instant < span.ended]
        if open_:
            own[max(open_, key=lambda place: spans[place].began)] += 1
    return own


@given(intervals())
def test_the_innermost_phase_owns_an_instant(spans: list[PhaseInterval]) -> None:
    """It is the last to begin of those that are open; the order of the spans does not matter."""
    assert own_times(spans) == by_instants(spans, 0, 250)
    assert own_times(spans[::-1])[::-1] == own_times(spans)


@given(intervals(), st.integers(0, 250), st.integers(0, 250))
def test_an_interval(spans: list[PhaseInterval], begin: int, end: int) -> None:
    """The own times in an interval are those of its instants."""
    assert own_times(spans, (begin, max(begin, end))) == by_instants(spans, begin, end)


@given(intervals(), st.integers(0, 250), st.integers(0, 250))
def test_boundaries_and_spans_give_the_same(spans: list[PhaseInterval], killed: int, step_ends: int) -> None:
    """Also of a process that was killed inside of phases; with the time outside of any, all of its time is there."""
    spans = [span._replace(ended=min(span.ended, killed)) for span in spans if span.began < killed]
    process, own = ProcessTime(0), {}
    boundaries = [(time, place) for place, span in enumerate(spans) for time in span[:2]]
    for time, place in sorted([*boundaries, (min(killed, step_ends), -1)]):
        if place < 0:
            process.end_step(time)
        elif place in process.phases:
            own[place] = process.leave(place, time)
        else:
            process.enter(place, (_PHASES[place % 3], "onload" if place % 2 else ""), time)
    process.advance(killed)

    assert [own[place] for place in range(len(spans))] == own_times(spans)
    assert sum(process.spent.values()) == killed
    assert process.spent.get(OUTSIDE, 0) == killed - sum(own_times(spans))
    assert {
        name: process.last_step.get(name, 0) + process.since_step.get(name, 0) for name in process.spent
    } == process.spent


def test_a_child_that_begins_with_its_parent() -> None:
    """It is the inner one, whichever is longer."""
    parent, child = PhaseInterval(0, 10, "a", "step"), PhaseInterval(0, 10, "b", "a")

    assert own_times([parent, child]) == own_times([child, parent])[::-1] == [0, 10]
    assert own_times([parent, child._replace(ended=12)]) == [0, 12]
    assert own_times([parent, child._replace(ended=4)]) == [6, 4]


def test_a_clock_that_is_set_back() -> None:
    """Nothing counts twice."""
    process = ProcessTime(0)
    process.enter(1, ("generate", ""), 10)
    process.enter(2, ("reward", ""), 5)

    assert (process.leave(2, 8), process.leave(1, 20), process.spent) == (
        0,
        10,
        {OUTSIDE: 10, ("generate", ""): 10},
    )


def test_trajectories_own_what_is_outside_of_phases() -> None:
    """A worker that samples without phases is in its trajectories."""
    process = ProcessTime(0)
    process.enter_trajectory(1, "rl.trajectory", 1)
    process.enter(2, ("generate", ""), 2)

    assert (process.leave(2, 6), process.leave(1, 7), process.leave(3, 8)) == (4, None, None)
    assert process.spent == {OUTSIDE: 1, ("rl.trajectory", ""): 2, ("generate", ""): 4}


@given(st.lists(st.tuples(st.sampled_from(_PHASES), st.integers(0, 100))), st.integers(0, 1000))
def test_shares_close(own: list[tuple[str, int]], total: int) -> None:
    """Phases and the time outside of them sum to the total, or to the phases if these are more."""
    assert sum(closed(own, total).values()) == max(total, sum(time for _, time in own))

"""The time of a step, and that of the last steps."""

from __future__ import annotations

import math
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.facts.step_time import RECENT_STEPS, StepRow, of_machines, recent, times

S = 1_000_000_000


@given(st.lists(st.floats(0.001, 1e6), max_size=60))
def test_measured_times(seconds: list[float]) -> None:
    """The time of a step is that of its row, and the recent one the median of the last 20 rows."""
    rows = [StepRow(step, 0, step * S, value) for step, value in enumerate(seconds)]

    assert times(rows) == list(enumerate(seconds))
    assert recent(rows) == recent(rows[-RECENT_STEPS - 1 :]) == (median(seconds[-RECENT_STEPS:]) if seconds else None)


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 100)), min_size=1, max_size=50))
def test_a_trainer_that_only_logs(gaps: list[tuple[int, int]]) -> None:
    """The time since the row before is shared by the steps in between."""
    rows, step, at = [StepRow(0, 0, 0)], 0, 0
    for steps, seconds in gaps:
        step, at = step + steps, at + seconds * S
        rows.append(StepRow(step, 0, at))

    assert [time for _, time in times(rows)] == [seconds / steps for steps, seconds in gaps]
    assert recent(rows) == median([seconds / steps for steps, seconds in gaps][-RECENT_STEPS:])


def test_the_time_between_attempts() -> None:
    """It is not the time of a step."""
    rows = [StepRow(0, 0, 0), StepRow(1, 0, 2 * S), StepRow(2, 1, 900 * S), StepRow(3, 1, 903 * S)]

    assert times(rows) == [(1, 2.0), (3, 3.0)]


def test_times_that_are_not_finite() -> None:
    """They are left out; without any other, nothing is known."""
    assert recent([StepRow(0, 0, 0, math.nan), StepRow(1, 0, S, 3.0)]) == 3.0
    assert recent([StepRow(0, 0, 0, math.inf)]) is None
    assert recent([]) is None


def test_steps_of_several_machines() -> None:
    """The slowest machine counts, in the steps that all of them have a row of."""
    first = [StepRow(step, 0, step * S, 3.0) for step in range(1, 5)]
    second = [StepRow(step, 0, step * S + 1, 4.0 if step % 2 else None) for step in range(3)]

    assert of_machines([first, second]) == [StepRow(1, 0, S + 1, 4.0), StepRow(2, 0, 2 * S + 1, 3.0)]
    assert of_machines([first]) == first
    assert of_machines([]) == []

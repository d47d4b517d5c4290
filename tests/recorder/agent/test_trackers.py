"""The rows and metrics that trackers get."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Ended, Event, Item, Row
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.agent.steps.trackers import TrackerRows
from otel_rl.recorder.settings.settings import Rows
from otel_rl.semconv.vocabulary import Vocabulary


def left(
    items: list[Item], rows: Rows | None = None, chosen: str | tuple[str, ...] = "full", limit: int = 100
) -> list[Item]:
    """Return what leaves, with a state that is saved and read back between any two items."""
    reductions = Reductions({}, Vocabulary("auto").read)
    trackers = TrackerRows(msgspec.structs.replace(rows or Rows(), metrics=chosen, limit=limit), reductions)
    state, found = State(), []
    for item in items:
        found += trackers.of([item], state)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State)
    return found


def steps(*numbers: int, attempt: int = 0) -> list[Item]:
    """Return rows whose value is their step."""
    return [Row(n, n, {"x": float(n)}, attempt=attempt) for n in numbers]


END = Ended(9, 0, "lost")
LATE = Row(1, 3, {"x": 6.0}, late=True, part=1)


@pytest.mark.parametrize(
    ("rows", "items", "expected"),
    [
        pytest.param(Rows(), steps(0, 1), [(0, 0.0), (1, 1.0)], id="every row"),
        pytest.param(Rows(every=5), steps(*range(1, 11)), [(5, 3.0), (10, 8.0)], id="the mean since the last row"),
        pytest.param(Rows(every=5, window="last"), steps(*range(1, 6)), [(5, 5.0)], id="the step itself"),
        pytest.param(Rows(every=5), steps(*range(6)), [(0, 0.0), (5, 3.0)], id="step 0"),
        pytest.param(Rows(first=False), steps(0, 1, 2), [(1, 0.5), (2, 2.0)], id="step 0 counts in step 1"),
        pytest.param(Rows(every=5, first=False), steps(*range(6)), [(5, 2.5)], id="no step 0"),
        pytest.param(Rows(every=5), [*steps(*range(1, 8)), END], [(5, 3.0), (7, 6.5)], id="the rest at the end"),
        pytest.param(Rows(every=5, window="last"), [*steps(*range(1, 8)), END], [(5, 5.0), (7, 7.0)], id="the last"),
        pytest.param(Rows(every=2), [*steps(1, 3, 5), END], [(1, 1.0), (3, 3.0), (5, 5.0)], id="steps never due"),
        pytest.param(
            Rows(every=5), [*steps(6, 7, 8), *steps(7, 8, 9, 10, attempt=1)], [(8, 7.0), (10, 8.5)], id="a new attempt"
        ),
        pytest.param(Rows(every=3), [*steps(1, 2), LATE, *steps(3)], [(3, 3.0)], id="late, but the row has not left"),
        pytest.param(Rows(every=5), [*steps(2, 5), LATE], [(5, 3.5), (1, 6.0)], id="late, and the row has left"),
        pytest.param(Rows(every=0), [*steps(0, 1), LATE, END], [], id="never"),
    ],
)
def test_the_rows_of_windows(rows: Rows, items: list[Item], expected: list[tuple[int, float]]) -> None:
    """The steps that have a row, and its value. Other items leave at once."""
    found = left([Event("x", 0), *items], rows)

    assert [(row.step, row.values["x"]) for row in found if isinstance(row, Row)] == expected
    assert [row for row in found if isinstance(row, Row) and row.late] == ([LATE] if (1, 6.0) in expected else [])
    assert [item for item in found if not isinstance(item, Row)] == [Event("x", 0), *[END] * items.count(END)]


@given(st.integers(1, 10), st.booleans(), st.integers(0, 100))
def test_a_window_ends_at_the_step_that_is_due(every: int, first: bool, step: int) -> None:
    """Steps are in one window if no step that is due lies between them."""
    rows = Rows(every=every, first=first)
    windows = [rows.window_of(n) for n in (step, step + 1)]

    assert (windows[0] != windows[1]) == rows.is_due(step)


def test_rows_of_all_steps_leave_as_they_are() -> None:
    """Without settings nothing is changed."""
    items: list[Item] = [Row(0, 1, {"loss": 1.0}), Row(1, 3, {"loss": 2}, missing_ranks=(1,))]

    assert left(items) == items


def test_extremes_and_nan_over_the_window() -> None:
    """A maximum stays a maximum; NaN does not affect a mean, and is kept if there is no other value."""
    values = [{"x/max": 3.0, "kl": math.nan, "bad": math.nan}, {"x/max": 1.0, "kl": 2.0, "bad": math.nan}]
    (row,) = left([Row(n, n, v) for n, v in enumerate(values, 1)], Rows(every=2))

    assert (row.values["x/max"], row.values["kl"]) == (3.0, 2.0)
    assert math.isnan(row.values["bad"])


def test_counts_since_the_start_are_not_averaged() -> None:
    """The dialect knows that tokens are counted since the start, and the last count leaves."""
    items: list[Item] = [Row(n, n, {"train/num_tokens": 100.0 * n}) for n in range(1, 4)]

    assert [row.values for row in left(items, Rows(every=3))] == [{"train/num_tokens": 300.0}]


def test_chosen_metrics() -> None:
    """A row of which nothing is chosen does not leave."""
    items: list[Item] = [Row(0, 0, {"actor/loss": 1.0, "actor/lr": 2.0, "time/step": 3.0}), Row(1, 1, {"x": 1.0})]

    assert [row.values for row in left(items, chosen=("actor/*", "!*/lr"))] == [{"actor/loss": 1.0}]


def test_nothing_is_chosen(caplog: pytest.LogCaptureFixture) -> None:
    """A choice that fits no metric of a row is probably a mistake: one warning."""
    items: list[Item] = [Row(step, 0, {"actor/loss": 1.0, "actor/lr": 2.0}) for step in range(3)]

    assert left(items, Rows(metrics=("actr/*",)), chosen=("actr/*",)) == []
    assert caplog.messages == ["rows.metrics=('actr/*',) chose none of 2 metrics of step 0"]


def test_a_million_names(caplog: pytest.LogCaptureFixture) -> None:
    """The first names are kept, in their order, for the whole run; the others are counted, and named once."""
    trackers = TrackerRows(Rows(limit=1000), Reductions({}, Vocabulary("auto").read))
    state = State()
    first = trackers.of([Row(0, 0, {f"name/{n}": 1.0 for n in range(10**6)})], state)
    second = trackers.of([Row(1, 1, {"name/7": 2.0, "name/7000": 2.0})], state)

    assert list(first[0].values) == [f"name/{n}" for n in range(1000)]
    assert second[0].values == {"name/7": 2.0}
    assert trackers.dropped == 10**6 - 1000 + 1
    assert len(caplog.records) == 1

"""The rows and metrics that trackers get."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from otel_rl.agent.steps.naming import Reductions
from otel_rl.agent.steps.state import State
from otel_rl.agent.steps.trackers import TrackerRows
from otel_rl.export import Event, Item, Row
from otel_rl.semconv.vocabulary import Vocabulary
from otel_rl.setup.settings import Rows

if TYPE_CHECKING:
    import pytest


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


def test_every_row_leaves_as_it_is() -> None:
    """Without settings nothing is changed."""
    items: list[Item] = [Row(0, 1, {"loss": 1.0}), Event("x", 2), Row(1, 3, {"loss": 2})]

    assert left(items) == items


def test_the_mean_over_the_steps_between() -> None:
    """Every fifth step leaves the mean of the steps since the last one."""
    items: list[Item] = [Row(n, n, {"loss": float(n)}) for n in range(1, 11)]

    assert [(row.step, row.values) for row in left(items, Rows(every=5))] == [(5, {"loss": 3.0}), (10, {"loss": 8.0})]


def test_step_0_only_if_asked_for() -> None:
    """The first step of all has a switch of its own."""
    items: list[Item] = [Row(n, n, {"loss": 1.0}) for n in range(6)]

    assert [row.step for row in left(items, Rows(every=5))] == [0, 5]
    assert [row.step for row in left(items, Rows(every=5, first=False))] == [5]


def test_never() -> None:
    """0 leaves no row; events leave all the same."""
    assert left([Row(0, 0, {"loss": 1.0}), Event("x", 2)], Rows(every=0)) == [Event("x", 2)]


def test_the_value_of_the_step_itself() -> None:
    """`window="last"` skips steps rather than to average them."""
    items: list[Item] = [Row(n, n, {"loss": float(n)}) for n in range(1, 6)]

    assert [row.values for row in left(items, Rows(every=5, window="last"))] == [{"loss": 5.0}]


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


def test_a_late_row_leaves_by_itself() -> None:
    """It is of a step that has left already."""
    late = Row(3, 9, {"eval": 0.5}, late=True)

    assert left([Row(1, 1, {"loss": 1.0}), late], Rows(every=5)) == [late]


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

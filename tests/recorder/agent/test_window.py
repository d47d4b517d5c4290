"""Values over several steps, through the reducer and the rows for trackers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Ended, Row
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduced import Reduced
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.agent.steps.trackers import TrackerRows
from otel_rl.recorder.agent.steps.window import Window
from otel_rl.recorder.journal.records import Logged, Observed, Record
from otel_rl.recorder.settings.settings import Rows
from otel_rl.recorder.stats import statistics
from otel_rl.semconv.vocabulary import Vocabulary
from tests import samples
from tests.recorder.agent.reducing import S, reducing, row_of, rows, started, step

Steps = list[list[list[tuple[float, float]]]]
"""By step and rank: values and their weights, or samples."""


def over(
    steps: Sequence[Sequence[Sequence[Record]]],
    every: int,
    patterns: Mapping[str, str | Sequence[str]] | None = None,
    quantiles: Sequence[str] = (),
    dialect: str = "",
) -> list[Row]:
    """Return what trackers get of steps 1, 2, …, each with the records of each rank; saved and read after each."""
    patterns = patterns or {}
    vocabulary = Vocabulary(dialect or "auto")
    reductions = Reductions(patterns, vocabulary.read, quantiles, vocabulary.is_so_far)
    trackers = TrackerRows(Rows(every=every), reductions)
    ranks = range(len(steps[0]))
    state, left = State(), []
    for n, of_ranks in enumerate([*steps, [[] for _ in ranks]], 1):
        reducer = reducing(patterns, state, quantiles=quantiles, dialect=dialect or "auto")
        if n == 1:
            reducer.feed([(f"rank{rank}", started(rank, local=len(ranks))) for rank in ranks])
        made = Reduced()
        for rank in ranks:
            made.add(reducer.feed([(f"rank{rank}", record) for record in step(n, 2 * n * S, *of_ranks[rank])]))
        if n > len(steps):
            made.items.append(Ended(1, 0, "finished"))
        left += trackers.of(made.items, state, made.observed)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State)
    return rows(left)


numbers = st.floats(-1e6, 1e6)
observations = st.integers(1, 3).flatmap(
    lambda ranks: st.lists(
        st.lists(st.tuples(numbers, st.floats(0.5, 9)), min_size=ranks, max_size=ranks), min_size=1, max_size=6
    )
)


@settings(max_examples=samples.of(30, 200))
@given(observations)
def test_a_window_of_scalars_is_the_reduction_of_all_of_them(steps: list[list[tuple[float, float]]]) -> None:
    """Means by weights; maxima and minima of maxima and minima; deviations and quantiles of all values."""
    names = ("x", "m@max", "n@min", "s@std", "q@p50", "l@last")
    records = [
        [[Logged(n, 1, dict.fromkeys(names, value), weight)] for value, weight in of_step]
        for n, of_step in enumerate(steps, 1)
    ]
    (row,) = over(records, len(steps))
    values = [value for of_step in steps for value, _ in of_step]
    weights = [weight for of_step in steps for _, weight in of_step]
    expected = {
        "x": statistics.weighted_mean(values, weights),
        "m": max(values),
        "n": min(values),
        "s": statistics.std(values),
        "q": statistics.quantile(sorted(values), 0.5),
        "l": values[-1],
    }

    assert {name: row.values[name] for name in expected} == pytest.approx(expected, rel=1e-9, abs=1e-6)


@settings(max_examples=samples.of(30, 200))
@given(observations)
def test_a_window_of_samples_is_the_statistics_of_all_of_them(steps: list[list[tuple[float, float]]]) -> None:
    """Mean, max, min, std, sum, count and quantiles are those of the observations of all steps and ranks."""
    records = [
        [[Observed(n, 1, {"x": array("d", pair).tobytes()})] for pair in of_step] for n, of_step in enumerate(steps, 1)
    ]
    (row,) = over(records, len(steps), quantiles=("p90",))
    values = [value for of_step in steps for pair in of_step for value in pair]
    names = ("mean", "max", "min", "std", "sum", "count", "p90")
    expected = {f"x/{name}": float(statistics.reduce(name, values)) for name in names}

    assert {name: row.values[name] for name in expected} == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_several_statistics_of_one_pattern() -> None:
    """`reduce={"x": ("mean", "max")}` keeps its meaning over steps."""
    records = [[[Logged(n, 1, {"x": float(n + rank)})] for rank in (0, 10)] for n in (1, 2, 3)]
    (row,) = over(records, 3, {"x": ("mean", "max")})

    assert (row.values["x/mean"], row.values["x/max"]) == (7.0, 13.0)


def test_sums_of_scalars_belong_to_a_step() -> None:
    """ROLL's parts of a loss add up over the ranks, but the loss of ten steps is not ten times as high."""
    records = [[[Logged(n, 1, {"loss@sum": 0.5})] for _ in range(2)] for n in (1, 2)]
    (row,) = over(records, 2)

    assert row.values["loss"] == 1.0


def test_samples_that_are_not_finite_are_counted_over_the_window() -> None:
    """They enter no statistic, and none is forgotten."""
    records = [[[Observed(n, 1, {"x": array("d", [math.nan, float(n)]).tobytes()})]] for n in (1, 2)]
    (row,) = over(records, 2)

    assert (row.values["x/mean"], row.values["x/nonfinite"], row.nonfinite) == (1.5, 2, {"x": 2})


def test_a_weight_of_one_resets_another() -> None:
    """The last value that a rank logs counts, with its own weight."""
    ranks = [[Logged(0, 1, {"x": 0.0}, 8), Logged(0, 2, {"x": 0.0}, 1)], [Logged(0, 1, {"x": 5.0}, 1)]]

    assert row_of(reducing(), ranks) == {"x": 2.5}


@pytest.mark.parametrize(
    "name",
    ["global_step", "train/total_timesteps", "tokens_seen", "time/time_elapsed", "2/trainer/epoch", "play/moves"],
)
def test_what_counts_so_far_has_its_last_value(name: str) -> None:
    """Its mean over steps would be a step that never was; a whole number stays one. The dialect can say it too."""
    records = [[[Logged(n, 1, {name: n * 10})] for _ in range(2)] for n in (1, 2)]
    (row,) = over(records, 2, dialect="toyrl")

    assert (row.values[name], type(row.values[name])) == (20, int)


@pytest.mark.parametrize("name", ["loss", "timing/step", "total_loss", "steps_per_second", "critic/train_step"])
def test_what_belongs_to_a_step_is_averaged(name: str) -> None:
    """Times and counts of one step have names like those of counters: they have a mean, or their maximum."""
    records = [[[Logged(n, 1, {name: 30.0 - n * 10})]] for n in (1, 2)]
    (row,) = over(records, 2)

    assert row.values[name] in (15.0, 20.0)


def test_a_late_row_moves_no_counter_back() -> None:
    """A rank that comes late says where the run was, not where it is."""
    window = Window()
    for number in (2, 1):
        window.add(Row(number, 0, {"global_step": number * 10}, late=number == 1), None, lambda name: "last")

    assert window.pop() == Row(2, 0, {"global_step": 20}, begins=1)

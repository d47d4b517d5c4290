"""Observations and scalars of several ranks, as they are in the row."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Table
from otel_rl.recorder.journal.records import Observed, StepStarted, Tabled
from tests.recorder.agent.reducing import S, feed, logged, observed, reducing, row_of, started, step

CLIPPED_ON_RANKS = [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]]


def test_samples_give_all_statistics() -> None:
    """An array becomes mean, max, min, standard deviation of the population, sum and count."""
    row = row_of(reducing(), [[observed(0, reward=[1, 2, 3, 4])]])

    assert row == {
        "reward/mean": 2.5,
        "reward/max": 4.0,
        "reward/min": 1.0,
        "reward/std": math.sqrt(1.25),
        "reward/sum": 10.0,
        "reward/count": 4,
    }


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_however_the_tokens_lie_on_ranks(ranks: int) -> None:
    """The same tokens on any number of ranks give the same 0.375, as do means that tell their weight.

    In huggingface/trl#6380, a mean over two ranks says 0.5.
    """
    tokens = [token for of_rank in CLIPPED_ON_RANKS for token in of_rank]
    parts = [tokens[n::ranks] for n in range(ranks)]
    pooled = row_of(reducing(), [[observed(0, clip_ratio=part)] for part in parts])
    weighted = row_of(reducing(), [[logged(0, len(part), clip_ratio=sum(part) / len(part))] for part in parts])

    assert pooled["clip_ratio/mean"] == 0.375
    assert weighted["clip_ratio"] == pytest.approx(0.375, rel=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.data())
def test_how_samples_are_split_up_does_not_matter(samples: list[float], data: st.DataObject) -> None:
    """Over whatever ranks and calls, the row is the same to the last bit."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(samples)), max_size=5)))
    parts = [samples[a:b] for a, b in zip([0, *cuts], [*cuts, len(samples)], strict=True)]
    ranks = data.draw(st.integers(1, 3))
    split = row_of(reducing(), [[observed(0, x=part) for part in parts[rank::ranks]] for rank in range(ranks)])

    assert split == row_of(reducing(), [[observed(0, x=samples)]])


def test_chosen_quantiles() -> None:
    """Quantiles are computed if `quantiles` asks for them, with linear interpolation."""
    row = row_of(reducing(quantiles=["p05", "p95"]), [[observed(0, reward=[1, 2, 3, 4])]])

    assert (row["reward/p05"], row["reward/p95"]) == (pytest.approx(1.15), pytest.approx(3.85))


def test_nan_among_samples_is_counted_apart() -> None:
    """It enters no statistic, and the row says how many there were."""
    reducer = reducing()
    row = row_of(reducer, [[observed(0, kl=[1.0, math.nan, 3.0, math.inf])]])

    assert (row["kl/mean"], row["kl/max"], row["kl/count"], row["kl/nonfinite"]) == (2.0, 3.0, 2, 2)


def test_a_tag_chooses_the_statistic_and_is_taken_off() -> None:
    """`name@sum` and `name:max` are what ROLL and Trinity-RFT write."""
    records = [Observed(0, 1, {"tokens@sum": array("d", [1, 2]).tobytes(), "length:max": array("d", [5, 9]).tobytes()})]

    assert row_of(reducing(), [records]) == {"tokens": 3.0, "length": 9.0}


@pytest.mark.parametrize(
    ("patterns", "ranks", "expected"),
    [
        *[
            ({"x*": how}, [{"x/y": 1}, {"x/y": 4}], {"x/y": expected})
            for how, expected in (("mean", 2.5), ("sum", 5), ("max", 4), ("min", 1), ("last", 4))
        ],
        ({}, [{"x": math.nan}, {"x": 2.0}, {"x": 4.0}], {"x": 3.0}),
        ({}, [{"x": math.inf}, {"x": math.inf}], {"x": math.inf}),
        ({}, [{"tokens": 2**60 + 1}, {"tokens": 2**60 + 1}], {"tokens": 2**60 + 1}),
        ({}, [{"eval/acc/mean@4": 0.5}], {"eval/acc/mean@4": 0.5}),
        ({}, [{"x@sum": 1.0, "x@max": 2.0}], {"x": 1.0, "x@max": 2.0}),
        ({}, [{"score/max": 1, "score/min": 1}, {"score/max": 3, "score/min": 3}], {"score/max": 3, "score/min": 1}),
        *[({}, [{f"score/{of}": 1.0}, {f"score/{of}": 3.0}], {f"score/{of}": 2.0}) for of in ("std", "p95")],
        *[({}, [{f"score/{of}": 1.5}], {f"score/{of}": 1.5}) for of in ("std", "p95", "count")],
        ({}, [{"score/count": 1}, {"score/count": 3}], {"score/count": 4}),
        (
            {},
            [{"terminated": 1, "ratio_max": 1}, {"terminated": 3, "ratio_max": 3}],
            {"terminated": 2.0, "ratio_max": 2.0},
        ),
        ({"score/*": "mean"}, [{"score/max": 1}, {"score/max": 3}], {"score/max": 2.0}),
        ({"lr": ("min", "max")}, [{"lr": 1}, {"lr": 3}], {"lr/min": 1, "lr/max": 3}),
        ({}, [{"lr": 1.0}, {"lr": 3.0}], {"lr": 3.0}),
    ],
)
def test_how_scalars_are_reduced(
    patterns: dict[str, str | tuple[str, ...]], ranks: list[dict[str, float]], expected: dict[str, float]
) -> None:
    """By the user's pattern, the tag, the dialect, or the last component of the name, in this order; else the mean.

    Values that are not finite count if there are no others. A value that all ranks agree on stays as it is, also an
    int. Of two tags of one name, the second one stays.
    """
    assert repr(row_of(reducing(patterns), [[logged(**values)] for values in ranks])) == repr(expected)


def test_tables_of_ranks_are_one() -> None:
    """The rows of the ranks follow each other, in the order of the ranks, after the step's row."""
    reducer = reducing()
    reducer.feed([("a", started(0, local=2)), ("b", started(1, local=2))])
    feed(reducer, "b", *step(0, 0, Tabled(0, 7, "samples", ["prompt", "reward"], [("b", 2.0)], 1)))
    feed(reducer, "a", *step(0, 0, Tabled(0, 5, "samples", ["prompt", "reward"], [("a", 1.0)])))
    items = reducer.feed([("a", StepStarted(1, 2 * S, b"")), ("b", StepStarted(1, 2 * S, b""))]).items

    assert items[-1] == Table("samples", 0, 7, ("prompt", "reward"), (("a", 1.0), ("b", 2.0)), ranks=(0, 1), cut_rows=1)

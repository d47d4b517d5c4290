"""Observations and scalars of several ranks, as they are in the row."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Table
from otel_rl.journal.records import Observed, StepStarted, Tabled
from tests.agent.reducing import S, feed, logged, observed, reducing, row_of, rows, started, step

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


def test_the_mean_is_of_all_samples_and_not_of_the_means_of_ranks() -> None:
    """huggingface/trl#6380: 3 of 8 tokens are clipped, which is 0.375; a mean over two ranks says 0.5."""
    row = row_of(reducing(), [[observed(0, clip_ratio=tokens)] for tokens in CLIPPED_ON_RANKS])

    assert row["clip_ratio/mean"] == 0.375


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_however_the_tokens_lie_on_ranks(ranks: int) -> None:
    """The same tokens on any number of ranks give the same 0.375, as do means that tell their weight."""
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


def test_calls_of_one_step_are_pooled() -> None:
    """Micro-batches add up, with as many samples as each has."""
    row = row_of(reducing(), [[observed(0, kl=[1.0]), observed(0, kl=[2.0, 3.0])]])

    assert (row["kl/mean"], row["kl/count"]) == (2.0, 3)


def test_chosen_quantiles() -> None:
    """Quantiles are computed if `quantiles` asks for them, with linear interpolation."""
    row = row_of(reducing(quantiles=["p05", "p95"]), [[observed(0, reward=[1, 2, 3, 4])]])

    assert (row["reward/p05"], row["reward/p95"]) == (pytest.approx(1.15), pytest.approx(3.85))


def test_nan_among_samples_is_counted_apart() -> None:
    """It enters no statistic, and the row says how many there were."""
    reducer = reducing()
    row = row_of(reducer, [[observed(0, kl=[1.0, math.nan, 3.0, math.inf])]])

    assert (row["kl/mean"], row["kl/max"], row["kl/count"], row["kl/nonfinite"]) == (2.0, 3.0, 2, 2)


def test_samples_that_are_all_nan() -> None:
    """Their statistics are NaN, rather than absent."""
    row = row_of(reducing(), [[observed(0, kl=[math.nan, math.nan])]])

    assert math.isnan(row["kl/mean"])
    assert row["kl/count"] == 0


def test_a_tag_chooses_the_statistic_and_is_taken_off() -> None:
    """`name@sum` and `name:max` are what ROLL and Trinity-RFT write."""
    records = [Observed(0, 1, {"tokens@sum": array("d", [1, 2]).tobytes(), "length:max": array("d", [5, 9]).tobytes()})]

    assert row_of(reducing(), [records]) == {"tokens": 3.0, "length": 9.0}


def test_a_tag_that_is_no_statistic_is_part_of_the_name() -> None:
    """`mean@4` is Trinity-RFT's mean of four runs."""
    assert row_of(reducing(), [[logged(**{"eval/acc/mean@4": 0.5})]]) == {"eval/acc/mean@4": 0.5}


def test_two_tags_of_one_name_are_kept_apart() -> None:
    """The second one keeps its tag."""
    assert row_of(reducing(), [[logged(**{"x@sum": 1.0, "x@max": 2.0})]]) == {"x": 1.0, "x@max": 2.0}


def test_the_last_component_chooses_the_reducer() -> None:
    """A metric called `…/max` is the largest one of the ranks; only a whole component counts."""
    ranks = [[logged(score__max=1, terminated=1, ratio_max=1)], [logged(score__max=3, terminated=3, ratio_max=3)]]

    assert row_of(reducing(), ranks) == {"score/max": 3, "terminated": 2.0, "ratio_max": 2.0}


def test_what_the_user_says_counts_first() -> None:
    """A pattern wins over a tag and over the name; several statistics are names each."""
    ranks = [[logged(score__max=1, lr=1)], [logged(score__max=3, lr=3)]]
    reducer = reducing({"score/*": "mean", "lr": ("min", "max")})

    assert row_of(reducer, ranks) == {"score/max": 2.0, "lr/min": 1, "lr/max": 3}


def test_the_dialect_chooses_the_reducer() -> None:
    """The meaning of a framework's name decides how ranks are reduced: a learning rate is not averaged."""
    ranks = [[logged(**{"time/generate": 1.0})], [logged(**{"time/generate": 3.0})]]
    reducer = reducing()
    reducer.feed([("rank0", started(0, local=2)), ("rank1", started(1, local=2))])
    for n, records in enumerate(ranks):
        feed(reducer, f"rank{n}", *step(0, 0, *records))
    (row,) = rows(reducer.feed([(f"rank{n}", StepStarted(1, 2 * S, b"")) for n in range(2)]).items)

    assert row.values["time/generate"] == 3.0


def test_scalars_are_weighted_by_their_samples() -> None:
    """A mean of 8 samples counts 4 times as much as a mean of 2."""
    ranks = [[logged(0, 2, reward=0.5)], [logged(0, 6, reward=1 / 3)]]

    assert row_of(reducing(), ranks) == {"reward": pytest.approx(0.375)}


def test_tables_of_ranks_are_one() -> None:
    """The rows of the ranks follow each other, in the order of the ranks, after the step's row."""
    reducer = reducing()
    reducer.feed([("a", started(0, local=2)), ("b", started(1, local=2))])
    feed(reducer, "b", *step(0, 0, Tabled(0, 7, "samples", ["prompt", "reward"], [("b", 2.0)], 1)))
    feed(reducer, "a", *step(0, 0, Tabled(0, 5, "samples", ["prompt", "reward"], [("a", 1.0)])))
    items = reducer.feed([("a", StepStarted(1, 2 * S, b"")), ("b", StepStarted(1, 2 * S, b""))]).items

    assert items[-1] == Table("samples", 0, 7, ("prompt", "reward"), (("a", 1.0), ("b", 2.0)), ranks=(0, 1), cut_rows=1)

"""GRPO's group statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.frameworks.evaluation import groups
from otel_rl.frameworks.evaluation.groups import Share


def test_mean_and_std() -> None:
    """The deviation is that of the population; of nothing both are 0."""
    assert groups.mean_and_std([1, 2, 3, 4]) == (2.5, 1.118033988749895)
    assert groups.mean_and_std([7.0]) == (7.0, 0.0)
    assert groups.mean_and_std([]) == (0.0, 0.0)


def test_quantiles() -> None:
    """Seven quantiles by default, interpolated linearly, under names that are rounded."""
    assert groups.quantiles([4, 1, 3, 2]) == pytest.approx(
        {"p00": 1, "p05": 1.15, "p25": 1.75, "p50": 2.5, "p75": 3.25, "p95": 3.85, "p100": 4}
    )
    assert groups.quantiles([]) == {}
    assert list(groups.quantiles([1.0], [0.29, 0.57])) == ["p29", "p57"]


def test_zero_variance_groups() -> None:
    """Those without any advantage, of those that are not empty; ranks are added up."""
    one, other = groups.zero_variance([[0.0, 1e-9], [1.0, -1.0], []]), groups.zero_variance([[0.0]])

    assert one == Share(1, 2)
    assert (one + other).value == pytest.approx(2 / 3)
    assert groups.zero_variance([]).value is None


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=20))
def test_entropy_is_scipys(weights: list[float]) -> None:
    """Weights are normalized first; weights that are all 0 have no entropy."""
    from scipy.stats import entropy  # a worker that runs other tests need not load it

    expected = entropy(weights) if sum(weights) > 0 else 0.0

    assert groups.entropy(weights) == pytest.approx(expected, abs=1e-9)


def test_normalized_entropy() -> None:
    """Equal weights have the largest one there is; a single weight has none."""
    assert groups.normalized_entropy([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert groups.normalized_entropy([2.0]) == 0.0


def test_policy_entropy() -> None:
    """It is weighted by tokens, over ranks too, and unknown without any."""
    share = groups.policy_entropy([1.0, 2.0], [10, 20]) + groups.policy_entropy([3.0], [30])

    assert share.value == pytest.approx(0.1)
    assert groups.policy_entropy([], []).value is None


@pytest.mark.parametrize(("clipped", "total", "expected"), [(1, 4, 0.25), (5, 4, 1.0), (-1, 4, 0.0), (1, 0, 0.0)])
def test_clipped_fraction(clipped: float, total: float, expected: float) -> None:
    """It lies within 0 and 1."""
    assert groups.clipped_fraction(clipped, total) == expected


def test_a_negative_loss_stays_negative() -> None:
    """A policy loss for each token is what it is."""
    assert groups.per_token(-0.2, 10) == -0.02
    assert groups.per_token(1.0, 0) is None


def test_entropy_bonus() -> None:
    """The reward without it, and its part of both; a reward of 0 divides nothing by 0."""
    assert groups.entropy_bonus(1.0, 0.2) == pytest.approx((0.8, 0.25, 0.2))
    assert groups.entropy_bonus(0.0, 0.0) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"steps_per_epoch": 5, "num_generations": 2}, 2.0),
        ({"num_generations": 4}, 2.5),
        ({"num_epochs": 3, "total_steps": 30}, 1.0),
        ({}, 10.0),
    ],
)
def test_epochs(known: dict[str, int], expected: float) -> None:
    """The first known value determines the number of epochs in ten steps."""
    assert groups.epoch_progress(10, **known) == expected


TEXTS = [["a", "b", "a"], ["a", "c", "a"]]


def test_distinct_n_grams() -> None:
    """Different ones over all of a group's; completions that are too short have none."""
    assert groups.distinct(TEXTS, 1) == Share(3, 6)
    assert groups.distinct(TEXTS, 2) == Share(4, 4)
    assert groups.distinct([["a"]], 2).value is None


def test_jaccard_distance() -> None:
    """Sets of tokens that share one of three are two thirds apart."""
    assert groups.jaccard_distance(TEXTS) == pytest.approx(2 / 3)
    assert groups.jaccard_distance([["a"]]) == 0.0
    assert groups.jaccard_distance([[], []]) == 0.0


def test_over_groups() -> None:
    """Each group counts once, or by its size."""
    macro, micro = groups.over_groups(
        [[["a"]], [["b", "b"], ["b", "b"], ["b", "b"]]], lambda g: groups.distinct(g, 1).value
    )

    assert macro == pytest.approx((1 + 1 / 6) / 2)
    assert micro == pytest.approx((1 + 3 / 6) / 4)
    assert groups.over_groups([], groups.jaccard_distance) == (0.0, 0.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_quantiles_are_numpys(values: list[float]) -> None:
    """They agree with NumPy."""
    expected = dict(zip(("p05", "p50"), np.quantile(values, [0.05, 0.5]), strict=True))

    assert groups.quantiles(values, [0.05, 0.5]) == pytest.approx(expected, abs=1e-9)
    assert not math.isnan(sum(groups.quantiles(values).values()))

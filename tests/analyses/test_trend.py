"""The drift of a series, against scipy and against what it promises of random walks."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otel_rl.analyses.memory.trend import drift
from tests.real_parts import needs, part

stats = part("scipy.stats")
pytestmark = needs("scipy")

BLOCKS = 9


@given(st.lists(st.floats(-1e3, 1e3), min_size=BLOCKS, max_size=BLOCKS))
def test_of_single_levels_it_is_students_t_test(levels: list[float]) -> None:
    """Of their changes: slope, its lower bound and the probability, as scipy has them."""
    changes = [after - before for before, after in itertools.pairwise(levels)]
    assume(max(changes) - min(changes) > 1e-3)
    found, expected = drift(levels, BLOCKS), stats.ttest_1samp(changes, 0, alternative="greater")

    assert found.slope == pytest.approx((levels[-1] - levels[0]) / (BLOCKS - 1), abs=1e-9)
    rounding = 1e-3 * max(map(abs, changes))  # the quantiles of t have three decimals
    assert found.low == pytest.approx(expected.confidence_interval(0.95).low, abs=rounding)
    assert found.chance == pytest.approx(expected.pvalue, abs=1e-9)


@pytest.mark.parametrize("length", [1, 4, 32])
def test_a_random_walk_drifts_by_chance_as_often_as_stated(length: int) -> None:
    """The probability is below 5 % in 5 % of 4,000 walks, within three standard errors, for any length of blocks."""
    dice, rare = random.Random(length), 0
    for _ in range(4000):
        walk = list(itertools.accumulate(dice.gauss(0, 1) for _ in range(BLOCKS * length)))
        rare += drift(walk, BLOCKS).chance < 0.05

    assert rare <= 0.05 * 4000 + 3 * (0.05 * 0.95 * 4000) ** 0.5


def test_stationary_noise_drifts_by_chance_more_rarely() -> None:
    """Each rise must be followed by a fall."""
    dice = random.Random(0)
    rare = sum(drift([dice.gauss(0, 1) for _ in range(BLOCKS * 8)], BLOCKS).chance < 0.05 for _ in range(1000))

    assert rare < 0.01 * 1000


def test_without_noise_a_rise_is_certain() -> None:
    """And a level that does not change has no drift."""
    assert drift(range(BLOCKS), BLOCKS) == (1, 1, 0)
    assert drift([5.0] * BLOCKS, BLOCKS) == (0, 0, 1)

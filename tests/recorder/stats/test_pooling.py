"""Moments, sketches and pools: what is merged is the same however it was split up."""

from __future__ import annotations

import math
import random
import sys
from array import array

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_rl.recorder.stats import pool
from otel_rl.recorder.stats.moments import Moments
from otel_rl.recorder.stats.pool import Pool
from otel_rl.recorder.stats.sketch import RELATIVE_ERROR, Sketch

ALL = ("mean", "max", "min", "std", "sum", "count", "p05", "p50", "p99", "geomean")


@st.composite
def sharded(draw: st.DrawFn, samples: st.SearchStrategy[list[float]]) -> tuple[list[float], list[list[float]]]:
    """Return samples, and the same ones in another order, split up."""
    whole = draw(samples)
    mixed = draw(st.permutations(whole)) if len(whole) < 100 else random.Random(len(whole)).sample(whole, len(whole))
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    return whole, [list(mixed[a:b]) for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def merged(parts: list[list[float]]) -> Pool:
    """Return the pool of pools."""
    whole = Pool()
    for part in parts:
        one = Pool()
        one.add(array("d", part))
        whole.merge(one)
    return whole


FEW = sharded(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60))
WELL_CONDITIONED = sharded(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=200))


@given(FEW)
def test_few_samples_are_exact(case: tuple[list[float], list[list[float]]]) -> None:
    """Below the limit, every statistic is the same to the last bit for any sharding and order, but the sign of a 0."""
    whole, parts = case
    of_whole, of_parts = ([value + 0 for value in merged(each).statistics(ALL)] for each in ([whole], parts))

    assert repr(of_whole) == repr(of_parts)


@given(WELL_CONDITIONED)
def test_few_samples_are_numpys(case: tuple[list[float], list[list[float]]]) -> None:
    """They agree with NumPy on the pooled samples."""
    whole, parts = case
    found = merged(parts)
    expected = [np.mean(whole), np.std(whole), np.sum(whole), np.quantile(whole, 0.05), np.quantile(whole, 0.99)]

    assert found.statistics(["mean", "std", "sum", "p05", "p99"]) == pytest.approx(expected, rel=1e-12, abs=1e-9)


@settings(max_examples=20)
@given(sharded(st.lists(st.floats(-1e3, 1e3), min_size=100, max_size=300)))
def test_many_samples(case: tuple[list[float], list[list[float]]]) -> None:
    """Above the limit, moments agree to 1e-12 of the largest sample and quantiles within the stated error."""
    whole, parts = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "LIMIT", 50)
        found, single = merged(parts), merged([whole])
    largest = max(map(abs, whole)) + sys.float_info.min  # of smaller numbers, the last digits are not there

    assert found.count == single.count == len(whole)
    for name in ("mean", "std"):
        tolerance = 1e-12 * largest + math.sqrt(math.ulp(0.0))  # squares vanish below
        assert found.statistic(name) == pytest.approx(single.statistic(name), rel=1e-12, abs=tolerance)
    for name in ("max", "min", "p05", "p50", "p99"):
        assert found.statistic(name) == single.statistic(name)
    for q in (0.05, 0.5, 0.99):
        nearest = np.quantile(whole, q, method="lower")
        assert found.statistic(f"p{q * 100:g}") == pytest.approx(nearest, rel=RELATIVE_ERROR * 1.001, abs=1e-12)


@example(([0.0, 4.5e-159], [[0.0], [4.5e-159]]))  # the square is denormal: six of its digits are there
@given(WELL_CONDITIONED)
def test_moments_are_the_same_for_any_sharding(case: tuple[list[float], list[list[float]]]) -> None:
    """Count, mean and variance agree with NumPy and with each other to 1e-12 of the largest sample."""
    whole, parts = case
    found = Moments()
    for part in parts:
        one = Moments()
        one.add(part)
        found.merge(one)
    largest = max(map(abs, whole)) + sys.float_info.min  # of smaller numbers, the last digits are not there

    assert (found.count, found.minimum, found.maximum) == (len(whole), min(whole), max(whole))
    assert found.mean == pytest.approx(np.mean(whole), rel=1e-12, abs=1e-12 * largest)
    for ddof in (0, 1):
        tolerance = 1e-12 * largest**2 + len(whole) * math.ulp(0.0)  # each square is rounded
        assert found.variance(ddof) == pytest.approx(np.var(whole, ddof=ddof), rel=1e-11, abs=tolerance)


def test_moments_of_too_few() -> None:
    """There is no variance of nothing, and no sample variance of one."""
    one = Moments()
    one.add([2.0, math.nan, math.inf])

    assert math.isnan(Moments().std())
    assert (one.count, one.nonfinite, one.std(), one.total) == (1, 2, 0.0, 2.0)
    assert math.isnan(one.std(ddof=1))


@given(sharded(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=100)), st.floats(0, 1))
@example(([8.955658251968889e307], [[8.955658251968889e307]]), 0.0)
@example(([1.78e308, -1.78e308], [[1.78e308], [-1.78e308]]), 1.0)
def test_sketch(case: tuple[list[float], list[list[float]]], q: float) -> None:
    """A quantile is within half a percent of the sample at its rank, and the same for any sharding."""
    whole, parts = case
    found, single = Sketch(), Sketch()
    single.add(whole)
    for part in parts:
        one = Sketch()
        one.add(part)
        found.merge(one)
    exact = sorted(whole)[math.floor(q * (len(whole) - 1))]

    assert found.quantile(q) == single.quantile(q)
    assert found.quantile(q) == pytest.approx(exact, rel=RELATIVE_ERROR * 1.001, abs=1e-12)


def test_sketch_of_nothing() -> None:
    """It has no quantiles."""
    assert math.isnan(Sketch().quantile(0.5))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([math.nan, 1.0], math.nan), ([math.inf, math.inf], math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_samples_that_are_not_finite(samples: list[float], expected: float) -> None:
    """They are counted apart; where there is nothing else, the one infinity that there is remains."""
    found = Pool()
    found.add(samples)
    finite = [value for value in samples if math.isfinite(value)]

    assert (found.count, found.nonfinite) == (len(finite), len(samples) - len(finite))
    assert found.statistic("mean") == pytest.approx(finite[0] if finite else expected, nan_ok=True)


def test_a_pool_of_nothing() -> None:
    """It has a count and a sum, and no mean."""
    assert (Pool().statistic("count"), Pool().statistic("sum")) == (0, 0.0)
    assert math.isnan(Pool().statistic("mean"))


def test_last_is_the_sample_that_came_last() -> None:
    """It is the one statistic that depends on the order."""
    found = merged([[1.0, 5.0], [3.0], []])

    assert found.statistic("last") == 3.0


@given(st.lists(st.floats(), max_size=30))
def test_a_pool_is_data(samples: list[float]) -> None:
    """It is saved and read back as it is, as the agent does between any two records."""
    found = Pool()
    found.add(samples)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Pool)

    assert repr(found.statistics(ALL)) == repr(again.statistics(ALL))

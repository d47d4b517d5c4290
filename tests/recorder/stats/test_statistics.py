"""Statistics by name, and the reduction of scalars."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.stats import statistics

FLOATS = st.floats(-1e100, 1e100)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mean", 2.5), ("max", 4), ("min", 1), ("p50", 2.5), ("p99", 3.97), ("std", 1.118033988749895), ("sum", 10)],
)
def test_each(name: str, expected: float) -> None:
    """The statistics of 1, 2, 3, 4; the standard deviation is that of the population."""
    assert statistics.reduce(name, [1, 2, 3, 4]) == pytest.approx(expected, rel=1e-15)


def test_perplexities_are_averaged_geometrically() -> None:
    """2 and 8 give 4, not 5."""
    assert statistics.reduce("geomean", [2, 8]) == pytest.approx(4.0)


@pytest.mark.parametrize(("values", "expected"), [([0.0, 5.0], 0.0), ([-1.0, 4.0], math.nan)])
def test_geometric_mean_of_what_has_no_logarithm(values: list[float], expected: float) -> None:
    """It is 0 with a 0, and NaN with a negative value."""
    assert statistics.reduce("geomean", values) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", ["median", "foo", "p101", "p", "", "Mean", "min ", "p1000"])
def test_unknown(name: str) -> None:
    """An unknown name raises, and the message lists the known ones."""
    with pytest.raises(ValueError, match="use mean, max, min, sum, last, std, count, geomean"):
        statistics.parse(name)


@pytest.mark.parametrize(
    ("q", "name"),
    [(0.0, "p00"), (0.05, "p05"), (0.29, "p29"), (0.57, "p57"), (0.5, "p50"), (1.0, "p100"), (0.999, "p99.9")],
)
def test_names_of_quantiles(q: float, name: str) -> None:
    """They are rounded, so that 0.29 is not p28; and they can be parsed again."""
    assert statistics.quantile_key(q) == name
    assert statistics.parse(name) == pytest.approx(q)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("actor/loss@sum", ("actor/loss", "sum")),
        ("length:max", ("length", "max")),
        ("reward@p95", ("reward", "p95")),
        ("eval/acc/mean@4", ("eval/acc/mean@4", None)),
        ("x@foo", ("x@foo", None)),
        ("x_max", ("x_max", None)),
        ("@sum", ("@sum", None)),
        ("a@b@min", ("a@b", "min")),
    ],
)
def test_tags(name: str, expected: tuple[str, str | None]) -> None:
    """A whole statistic behind the last `@` or `:` is a tag; anything else is part of the name."""
    assert statistics.split_tag(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("critic/score/max", "max"),
        ("reward/p05", "p05"),
        ("terminated", None),
        ("mean_terminated", None),
        ("actor/ratio_max", None),
        ("score/maximum", None),
        ("max", None),
        ("", None),
    ],
)
def test_last_components(name: str, expected: str | None) -> None:
    """Only a whole component says which statistic a metric is: "terminated" contains "min"."""
    assert statistics.trailing_component(name) == expected


def test_ints_stay_ints() -> None:
    """Sums and extremes of ints, and what all agree on, are exact; sums beyond 64 bits are floats."""
    assert [statistics.reduce(name, [2**60, 2**60 + 1]) for name in ("sum", "max", "min")] == [
        2**61 + 1,
        2**60 + 1,
        2**60,
    ]
    assert type(statistics.reduce("mean", [7, 7])) is int
    assert repr(statistics.reduce("sum", [2**62, 2**62])) == repr(2.0**63)


def test_nothing_to_reduce() -> None:
    """A reduction of nothing raises."""
    with pytest.raises(ValueError, match="no values"):
        statistics.reduce("mean", [])


def test_weights() -> None:
    """A mean counts each value as often as its weight says; weights of 0 alone count equally."""
    assert statistics.reduce("mean", [1.0, 2.0], [3, 1]) == 1.25
    assert statistics.reduce("mean", [1.0, math.nan, 2.0], [3, 5, 1]) == 1.25
    assert statistics.reduce("mean", [1.0, 2.0], [0, 0]) == 1.5


@given(st.lists(FLOATS, min_size=1, max_size=50))
def test_mean_and_extremes_are_numpys(values: list[float]) -> None:
    """Mean, maximum and minimum agree with NumPy, the mean relative to the largest value."""
    scale = max(map(abs, values))

    assert statistics.reduce("mean", values) == pytest.approx(np.mean(values), rel=1e-12, abs=1e-12 * scale)
    assert (statistics.reduce("max", values), statistics.reduce("min", values)) == (np.max(values), np.min(values))


@given(st.lists(FLOATS, min_size=1, max_size=50), st.integers(0, 1000))
def test_quantiles_are_numpys(values: list[float], thousandths: int) -> None:
    """They are interpolated linearly, as NumPy does."""
    expected = np.quantile(values, thousandths / 1000)

    assert statistics.quantile(sorted(values), thousandths / 1000) == pytest.approx(
        expected, rel=1e-12, abs=1e-12 * max(map(abs, values))
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50), st.integers(0, 1))
def test_std_is_scipys(values: list[float], ddof: int) -> None:
    """The standard deviation agrees with SciPy for the population and for a sample."""
    from scipy.stats import tstd  # a worker that runs other tests need not load it

    expected = tstd(values, ddof=ddof)
    tolerance = 1e-9 * max(map(abs, values)) + 1e-150  # SciPy's squares vanish below

    assert statistics.std(values, ddof) == pytest.approx(expected, rel=1e-9, abs=tolerance)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308], 0.0),
        ([1e308, -1e308], 1e308),
        ([5e-324, 0.0], 5e-324),
        ([3.0], 0.0),
        ([1.0, math.inf], math.nan),
    ],
)
def test_std_at_the_ends_of_floats(values: list[float], expected: float) -> None:
    """No square overflows or vanishes."""
    assert statistics.std(values) == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=50))
def test_geometric_mean_is_scipys(values: list[float]) -> None:
    """It agrees with SciPy's."""
    from scipy.stats import gmean

    assert statistics.geometric_mean(values) == pytest.approx(gmean(values), rel=1e-12)

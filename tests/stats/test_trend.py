"""The slope of a series and how sure it is, against scipy."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otel_rl.stats.trend import trend
from tests.real_parts import needs, part

stats = part("scipy.stats")
pytestmark = needs("scipy")

LEVELS = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=40)


@given(LEVELS)
def test_the_slope_is_that_of_least_squares(ys: list[float]) -> None:
    """As scipy fits it."""
    found = trend(range(len(ys)), ys)
    assert found is not None

    assert found.slope == pytest.approx(stats.linregress(range(len(ys)), ys).slope, abs=1e-9, rel=1e-9)


@given(LEVELS)
def test_the_bound_is_that_of_students_t(ys: list[float]) -> None:
    """95 % on one side, 90 % for three or four points; beyond 22 points t is approximated to a hundredth."""
    n = len(ys)
    assume(max(ys) - min(ys) > 1e-3)
    fitted = stats.linregress(range(n), ys)
    low = fitted.slope - stats.t.ppf(0.95 if n > 4 else 0.9, n - 2) * fitted.stderr
    found = trend(range(n), ys)
    assert found is not None

    assert found.low == pytest.approx(low, abs=0.01 * fitted.stderr + 1e-9)


@pytest.mark.parametrize("xs", [[], [1], [1, 2], [3, 3, 3]])
def test_too_few_points_have_no_trend(xs: list[float]) -> None:
    """Neither have points that all have the same x."""
    assert trend(xs, xs) is None

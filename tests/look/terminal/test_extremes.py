"""Drawings of any floats: the largest, infinities, NaN and subnormals."""

from __future__ import annotations

import math
import sys

from hypothesis import given
from hypothesis import strategies as st

from otel_rl.look.terminal.drawing import bar, curve, extremes, gauge, sparkline
from otel_rl.recorder.convert.cells import cell_len
from otel_rl.recorder.facts.ranges import place_in, value_range

MOST = sys.float_info.max
FLOATS = st.sampled_from([MOST, -MOST, 5e-324, -5e-324, math.inf, -math.inf, math.nan, 0.0, 1.0]) | st.floats()
FINITE = FLOATS.filter(math.isfinite)


@given(st.lists(st.none() | FLOATS, max_size=12), st.integers(1, 9))
def test_curves(values: list[float | None], cells: int) -> None:
    """They fill their cells, whatever the values are."""
    points = [(float(place), value) for place, value in enumerate(values)]
    shown = value_range(values)
    drawn = curve(extremes(points, 2), cells, 2, (0.0, float(len(values))), (shown.low, shown.high))

    assert math.isfinite(shown.low)
    assert math.isfinite(shown.high)
    assert [len(row) for row in drawn] == [cells, cells]
    assert len(sparkline(points, cells)) == min(cells, len(points))


@given(st.lists(FLOATS, max_size=6), st.integers(0, 20), FLOATS)
def test_bars(amounts: list[float], cells: int, share: float) -> None:
    """They fill their cells, whatever the amounts are."""
    assert sum(cell_len(span.text) for span in bar([(amount, "other") for amount in amounts], cells)) == cells
    assert sum(cell_len(span.text) for span in gauge(share, cells, "other")) == cells


@given(FINITE, FINITE, FINITE)
def test_places(value: float, low: float, high: float) -> None:
    """A place is a share, 0 at the lower end and 1 at the upper one."""
    assert 0.0 <= place_in(value, low, high) <= 1.0
    if low < high:
        assert (place_in(low, low, high), place_in(high, low, high)) == (0.0, 1.0)

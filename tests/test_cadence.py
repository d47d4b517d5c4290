"""When rows leave, and what they are averages of."""

from __future__ import annotations

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.cadence import Cadence, Window, add, from_hugging_face, take


def over(values: list[float], statistic: str = "mean") -> float:
    window: Window = {}
    for value in values:
        add(window, {"x": value})
    return take(window, lambda name: statistic)["x"]


@pytest.mark.parametrize(
    ("cadence", "due"),
    [
        (Cadence(), [0, 1, 2, 3, 4]),
        (Cadence(2), [0, 2, 4]),
        (Cadence(2, first=False), [2, 4]),
        (Cadence(first=False), [1, 2, 3, 4]),
        (Cadence(0), []),
    ],
)
def test_due(cadence: Cadence, due: list[int]) -> None:
    """Every so many steps; step 0 has a switch of its own; 0 is never."""
    assert [step for step in range(5) if cadence.is_due(step)] == due


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_the_mean(values: list[float]) -> None:
    """It is the arithmetic mean of the steps."""
    assert over(values) == pytest.approx(math.fsum(values) / len(values), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("statistic", "expected"), [("max", 3.0), ("min", 1.0), ("last", 2.0), ("sum", 2.0), ("std", 2.0)]
)
def test_by_reducer(statistic: str, expected: float) -> None:
    """Extremes and last values are so over steps too; everything else is averaged, sums of a step as well."""
    assert over([1.0, 3.0, 2.0], statistic) == expected


def test_nan() -> None:
    """It does not poison the mean, and is left where there is nothing else."""
    assert over([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(over([math.nan, math.nan]))
    assert over([math.inf, math.inf]) == math.inf


def test_what_never_changed_keeps_its_type() -> None:
    """An int stays an int."""
    assert type(over([2**60, 2**60])) is int


def test_taking_empties() -> None:
    """The next window begins with nothing."""
    window: Window = {}
    add(window, {"x": 1.0})
    take(window, lambda name: "mean")

    assert take(window, lambda name: "mean") == {}


def test_epochs_are_not_known(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once."""
    from_hugging_face.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [from_hugging_face("Epochs").every for _ in range(3)] == [0, 0, 0]

    assert len(caplog.records) == 1

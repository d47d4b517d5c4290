"""The steps that have a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.setup.settings import Rows


@pytest.mark.parametrize(
    ("rows", "due"),
    [
        (Rows(), [0, 1, 2, 3, 4]),
        (Rows(every=2), [0, 2, 4]),
        (Rows(every=2, first=False), [2, 4]),
        (Rows(first=False), [1, 2, 3, 4]),
        (Rows(every=0), []),
    ],
)
def test_due(rows: Rows, due: list[int]) -> None:
    """Every so many steps; step 0 has a switch of its own; 0 is never."""
    assert [step for step in range(5) if rows.is_due(step)] == due


@given(st.integers(1, 10), st.booleans(), st.integers(0, 100))
def test_a_window_ends_at_the_step_that_is_due(every: int, first: bool, step: int) -> None:
    """Steps are in one window if no step that is due lies between them."""
    rows = Rows(every=every, first=first)
    windows = [rows.window_of(n) for n in (step, step + 1)]

    assert (windows[0] != windows[1]) == rows.is_due(step)

"""Which trajectories of a step are kept, if there are too many."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.agent.steps.message_budget import Candidate, chosen


def candidate(
    n: int, *, group: str = "", size: int = 10, reward: float = 0.5, length: int = 5, gap: float = 0.0
) -> Candidate:
    return Candidate(str(n), group or str(n), size, reward, length, gap)


def test_what_fits_is_kept() -> None:
    """Nothing is left out below the budget."""
    assert chosen([candidate(n) for n in range(10)], 100) == {str(n) for n in range(10)}


def test_the_extremes_are_kept() -> None:
    """The lowest and the highest reward, the longest, and the largest gap; without a reward, a trajectory has none."""
    many = [candidate(n, reward=0.5 + n / 1e6) for n in range(1000)]
    many += [candidate(1000, reward=-3), candidate(1001, reward=7), candidate(1002, length=999), candidate(1003, gap=5)]
    many.append(candidate(1004, reward=math.nan, gap=math.nan))

    assert {"1000", "1001", "1002", "1003"} <= chosen(many, 100)


def test_groups_are_kept_whole() -> None:
    """An advantage is relative to its group."""
    many = [candidate(n, group=f"g{n // 8}", reward=math.sin(n)) for n in range(800)]
    kept = chosen(many, 800)

    assert len(kept) == 80
    assert all((str(n) in kept) == (str(n - n % 8) in kept) for n in range(800))


def test_a_group_that_is_larger_than_the_budget() -> None:
    """Some of its trajectories are kept, the extremes among them."""
    kept = chosen([candidate(n, group="g", size=30, reward=n) for n in range(10)], 100)

    assert len(kept) == 3
    assert kept & {"0", "9"}


def test_half_of_them_are_a_fair_sample() -> None:
    """Where all have the same chance, rewards are those of all: extremes do not fill the budget."""
    many = [candidate(n, reward=float(n)) for n in range(2000)]
    middle = [n for n in map(int, chosen(many, 4000)) if 200 <= n < 1800]

    assert len(middle) >= 100
    assert 900 < sum(middle) / len(middle) < 1100


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(), st.integers(0, 3)), max_size=30), st.integers(0, 200))
def test_the_budget_holds_and_the_order_does_not_matter(found: list[tuple[int, float, int]], budget: int) -> None:
    """Whatever the rewards are."""
    many = [candidate(n, group=f"g{g}", size=size, reward=reward) for n, (size, reward, g) in enumerate(found)]
    kept = chosen(many, budget)

    assert sum(one.size for one in many if one.key in kept) <= budget
    assert chosen(many[::-1], budget) == kept

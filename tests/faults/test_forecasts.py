"""Forecasts of exhausted memory keep their stated error rate; the full count is `python -m benchmarks forecasts`."""

from __future__ import annotations

import random

import pytest

from benchmarks.forecasts import GIB, HEALTHY, LIMIT, NOISE, STEPS, false_forecasts, forecast_after, leak

RUNS = 2000
RATE = 0.05


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_memory_is_rarely_said_to_grow(kind: str) -> None:
    """In 5 % of the runs at most: noise of 4 GB, autocorrelated noise, random walks, caches that fill and empty."""
    runs = RUNS // len(HEALTHY)

    assert false_forecasts(kind, runs) <= RATE * runs


def test_a_random_walk_of_any_size_is_rarely_said_to_grow() -> None:
    """Steps of 2 GB: the absolute floor does not help there, so the test for a drift has to hold by itself."""
    wrong = 0
    for seed in range(200):
        dice, level, levels = random.Random(seed), LIMIT / 2, []
        for _ in range(STEPS):
            level = max(0.0, min(LIMIT, level + dice.gauss(0, 2e9)))
            levels.append(level)
        wrong += forecast_after(levels) is not None

    assert wrong <= RATE * 200


def test_the_first_steps_of_noise_are_rarely_called_a_rush() -> None:
    """1 % of the runs with noise of 4 GB: three of its levels ascend in one of six."""
    wrong = 0
    for seed in range(1000):
        dice = random.Random(seed)
        wrong += forecast_after(dice.gauss(LIMIT / 2, NOISE) for _ in range(9)) is not None

    assert wrong <= 0.01 * 1000


@pytest.mark.parametrize(
    ("slope", "spread", "steps"),
    [(0.1, 2e8, 110), (0.1, 1e9, 120), (0.3, 2e8, 36), (0.3, NOISE, 144), (1, 2e8, 12), (1, 1e9, 27), (3, 1e9, 12)],
)
def test_a_leak_is_found_in_time(slope: float, spread: float, steps: int) -> None:
    """At least 19 of 20 leaks, of GiB a step in bytes of noise, after so many steps and long before memory is full."""
    found = [forecast_after(leak(slope, spread, seed)) for seed in range(20)]

    assert sum(after is not None and after <= steps for after in found) >= 19


def test_a_leak_that_begins_late_is_found() -> None:
    """After 1,000 healthy steps a look must be surer than the first ones, yet it is made in time."""
    dice = random.Random(1)
    healthy = [30 * GIB + dice.gauss(0, 2e8) for _ in range(1000)]
    leaking = [30 * GIB + n * GIB + dice.gauss(0, 2e8) for n in range(50)]

    after = forecast_after([*healthy, *leaking])

    assert after is not None
    assert 1000 < after <= 1040


def test_a_cache_that_fills_in_high_teeth_is_no_leak_once_it_was_emptied() -> None:
    """Teeth of 16 GiB; the first is too short to be taken for a leak, the others do not rise above it."""
    dice = random.Random(3)
    lengths = [6, *(dice.randint(20, 40) for _ in range(12))]
    levels = [20 * GIB + 16 * GIB * n / length for length in lengths for n in range(length)]

    assert forecast_after(levels) is None

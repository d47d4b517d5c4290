"""Changes of the times of steps: how many are found, and how few are said without one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import slow_downs
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.series import Series
from otel_rl.look.insight.shifts import shifts
from tests.look.insight.played import Played, play

RUNS = 100


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("is_live", [False, True], ids=["ended", "live"])
def test_runs_without_a_change_are_not_accused(correlation: float, is_live: bool) -> None:
    """At most 1 of 100 by the thresholds; 4 of 100 by chance."""
    detector = slow_downs.found_live if is_live else slow_downs.found

    assert slow_downs.share(detector, slow_downs.FLAT, 200, 0.15, correlation, RUNS) <= 4


@pytest.mark.parametrize(
    ("count", "correlation", "course", "least"),
    [
        (300, 0.5, slow_downs.STEP, 88),
        (300, 0.5, slow_downs.RISE, 82),
        (300, 0.8, slow_downs.STEP, 36),
        (1000, 0.8, slow_downs.STEP, 95),
    ],
)
def test_slow_downs_in_correlated_noise(
    count: int, correlation: float, course: slow_downs.Course, least: float
) -> None:
    """They are found nearly as often as by a test that knows the correlation."""
    found = slow_downs.share(slow_downs.found, course, count, 0.15, correlation, RUNS)

    assert found >= least
    assert found >= slow_downs.share(slow_downs.limit(count, correlation), course, count, 0.15, correlation, RUNS) - 10


@pytest.mark.parametrize("count", [300, 1000])
def test_slow_noise_under_quick_noise(count: int) -> None:
    """The correlation of neighbors does not show it: few are accused, of half without the test of blocks."""
    chance = np.random.default_rng(count)
    slow, quick = (slow_downs.noise(chance, RUNS, count, correlation) for correlation in (0.9, 0.0))

    assert sum(slow_downs.found(values) for values in 0.1 * (slow + quick)) <= 0.04 * RUNS


def test_a_rise_is_one_change() -> None:
    """It has no step at which it came, but a level at its begin and one at its end."""
    noise = 0.02 * np.random.default_rng(1).normal(size=300)
    (rise,) = shifts(Series(np.arange(300), 40 * np.exp(noise + math.log(1.5) * np.linspace(0, 1, 300))), 0.08)

    assert (rise.is_rise, rise.first, rise.last) == (True, 0, 299)
    assert (rise.before, rise.after) == (pytest.approx(41.6, rel=0.02), pytest.approx(57.6, rel=0.02))


@pytest.mark.parametrize(("begin", "end"), [(64, 96), (0, 60), (90, 160), (30, 130)])
def test_a_ramp_between_two_levels(begin: int, end: int) -> None:
    """It is one change, with its levels, and where it was."""
    noise = 0.04 * np.random.default_rng(1).normal(size=160)
    course = math.log(1.8) * np.clip((np.arange(160) - begin) / (end - begin), 0, 1)
    (ramp,) = shifts(Series(np.arange(160), 40 * np.exp(noise + course)), 0.08)

    assert ramp.after / ramp.before == pytest.approx(1.8, rel=0.2)
    assert abs((ramp.first + ramp.last) / 2 - (begin + end) / 2) < 25


@pytest.mark.parametrize("period", [10, 20, 50])
def test_evaluations_are_no_change(period: int) -> None:
    """Steps that take four times as long in a fixed period are outliers."""
    assert slow_downs.share(slow_downs.found, slow_downs.every(period, 3.0), 300, 0.05, 0.5, RUNS) <= 2


def test_slow_steps_for_a_while() -> None:
    """Both ends are found, also if the run goes on for long."""
    noise = 0.05 * np.random.default_rng(2).normal(size=2000)
    noise[1500:1560] += math.log(1.5)

    assert [shift.step for shift in shifts(Series(np.arange(2000), 40 * np.exp(noise)), 0.08)] == [1500, 1560]


@pytest.mark.parametrize(("seconds", "changes"), [(2e-5, 0), (2.0, 1)])
def test_steps_of_microseconds(tmp_path: Path, seconds: float, changes: int) -> None:
    """A change by less than a millisecond is not worth a line."""
    training = Played(phases=lambda step, _: {"generate": seconds * (2 if step >= 30 else 1)}, between=0)
    facts = facts_of(play(tmp_path / "run", training, 60))

    assert sum(finding.kind == "change" for finding in facts.findings) == changes

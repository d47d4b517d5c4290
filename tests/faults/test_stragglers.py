"""Reports of stragglers keep their stated error rate; the full count is `python -m benchmarks forecasts`."""

from __future__ import annotations

import random

import pytest

from benchmarks.synthetic_ranks import NOISES, reported
from otel_rl.analyses.stragglers import Stragglers
from otel_rl.export import Span

RATE = 0.05
S = 1_000_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("world", "runs"), [(4, 12), (8, 8), (64, 1)])
def test_healthy_ranks_are_rarely_reported(world: int, runs: int) -> None:
    """In 5 % of the runs at most, over noises from 3 % to one without a variance; 105 runs here, 2,000 in all."""
    wrong = sum(bool(reported(world, noise, seed)) for noise in NOISES for seed in range(runs))

    assert wrong <= RATE * runs * len(NOISES)


@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("phase", ["generate", "update_actor"])
def test_a_slow_rank_is_reported(world: int, phase: str) -> None:
    """30 % in one phase of six, in noise of 3 %: in at least 95 % of the runs, and nothing else is."""
    slow = (world - 1, phase)

    assert sum(reported(world, "3 %", seed, slow) == {slow} for seed in range(20)) >= 0.95 * 20


def waiting(rank: int, phase: str, start: float, seconds: float) -> Span:
    times = round(start * S), round((start + seconds) * S)
    return Span(phase, "", "", "", *times, {"rl.phase": phase, "rl.rank": rank})


@pytest.mark.parametrize(("takes", "delay", "rest"), [(0.01, 0.0017, 0.0), (0.01, 0.009, 0.0), (0.2, 0.05, 40.0)])
def test_what_costs_nothing_is_not_reported(takes: float, delay: float, rest: float) -> None:
    """A steady delay below 10 ms, or below 0.25 % of the step, however large it is compared with a short phase."""
    stragglers, found = Stragglers(), []
    for step in range(60):
        spans = [waiting(rank, "reward", 50.0 * step, takes + delay * (rank == 1)) for rank in range(4)]
        spans += [waiting(rank, "train", 50.0 * step + takes + delay, rest) for rank in range(4)]
        found += stragglers.add(spans)

    assert found == []


def test_two_slow_ranks_are_both_reported_once() -> None:
    """Whichever of them is the slower one in a step."""
    stragglers, found, dice = Stragglers(), [], random.Random(1)
    for step in range(200):
        took = [1 + 0.5 * (rank in (2, 5)) + dice.gauss(0, 0.05) for rank in range(8)]
        found += stragglers.add([waiting(rank, "train", 10.0 * step, took[rank]) for rank in range(8)])

    assert sorted(one.rank for one in found) == [2, 5]


def test_a_rank_that_becomes_slow_late_is_reported() -> None:
    """Within 30 steps, after 500 healthy ones."""
    stragglers, dice, reports = Stragglers(), random.Random(2), []
    for step in range(530):
        took = [1 + 0.5 * (rank == 3 and step >= 500) + dice.gauss(0, 0.05) for rank in range(4)]
        spans = [waiting(rank, "train", 10.0 * step, took[rank]) for rank in range(4)]
        reports += [(step, one.rank) for one in stragglers.add(spans)]

    assert [rank for _, rank in reports] == [3]
    assert reports[0][0] >= 500


def test_a_phase_that_takes_the_others_no_time_has_a_score() -> None:
    """One rank writes a checkpoint, the others only pass by."""
    stragglers, found = Stragglers(), []
    for step in range(40):
        spans = [waiting(rank, "checkpoint", 10.0 * step, 5.0 * (rank == 0)) for rank in range(4)]
        found += stragglers.add(spans)

    assert [(one.rank, one.seconds) for one in found] == [(0, 5.0)]

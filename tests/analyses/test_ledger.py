"""The ledger of memory: what grows, which phase is to blame, when there is none left."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.analyses.memory.ledger import Account, Ledger, Outlook, blamed

GIB = float(1 << 30)
DEVICE = Account("rank0", "device_used")
LIMIT = 80 * GIB


def replay(steps: list[dict[str, float]], start: float = 0.0, limit: float = LIMIT) -> list[Outlook | None]:
    """Return the outlooks at the end of each step, for the GiB that each phase ends with."""
    ledger = Ledger()
    ledger.charge(DEVICE, "outside", start * GIB)
    told = []
    for levels in steps:
        for phase, level in levels.items():
            ledger.charge(DEVICE, phase, level * GIB)
            ledger.leave(DEVICE, phase)
        told.append(ledger.close_step(DEVICE, limit))
    return told


def colocated(residual: float) -> dict[str, float]:
    """A step of a colocated run: the engine wakes, generates, sleeps and leaves `residual`; then there is training."""
    return {
        "wake_up": residual + 43.8,
        "generate": residual + 44,
        "sleep": residual,
        "train": residual + 40,
        "": residual,
    }


def test_memory_that_an_engine_keeps_in_its_sleep() -> None:
    """NVIDIA-NeMo/RL#2619: 4.1, 11.6, 25 GiB stay after the engine's sleep, and training runs out of memory.

    It is reported after the third step, before memory runs out, and the sleep is blamed.
    """
    told = replay([colocated(4.11), colocated(11.57), colocated(25.0)], start=4.11)

    assert told[:2] == [None, None]
    assert told[2] is not None
    assert (told[2].phase, told[2].steps) == ("sleep", 1)
    assert told[2].message == "out of memory in about 1 steps, growing in phase sleep"


def test_a_phase_that_wakes_and_sleeps_itself_is_blamed() -> None:
    """Where one phase takes and gives back, what it keeps is its own."""
    told = replay([{"generate": residual, "train": residual} for residual in (4.11, 11.57, 25.0)], start=4.11)

    assert told[2] is not None
    assert told[2].phase == "generate"


def test_a_slow_leak() -> None:
    """One GiB per step, in noise: it is reported in time, and again when half of the steps are left."""
    noise = random.Random(7)
    told = [one for one in replay([{"reward": n + noise.gauss(0, 0.2)} for n in range(60)]) if one is not None]

    assert told[0].phase == "reward"
    assert told[0].steps == pytest.approx(80 - 5, abs=5)
    assert [one.steps <= before.steps / 2 for before, one in itertools.pairwise(told)] == [True] * (len(told) - 1)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_growth(seed: int) -> None:
    """Levels that go up and down around 40 GiB by 1 GiB cause no warning in 300 steps."""
    noise = random.Random(seed)
    levels = [40 + noise.gauss(0, 1) for _ in range(300)]

    assert set(replay([{"generate": level} for level in levels], start=40)) == {None}


@pytest.mark.parametrize("warm_up", [[10.0], [10.0, 25.0], [5.0, 20.0, 28.0]])
def test_a_warm_up_is_no_growth(warm_up: list[float]) -> None:
    """Optimizer states and caches come in the first steps, and then no more."""
    levels = [*warm_up, *[30 + 0.1 * (n % 2) for n in range(100)]]
    told = replay([{"train": level} for level in levels])

    assert told[len(warm_up) :] == [None] * 100


def test_growth_that_stays_far_from_the_limit_is_none() -> None:
    """Twenty MiB a step are as nothing on 80 GiB."""
    assert set(replay([{"train": 10 + n * 0.02} for n in range(200)])) == {None}


def test_without_a_limit_nothing_is_told() -> None:
    """Nobody knows when memory of unknown size runs out."""
    assert set(replay([colocated(10.0 * n) for n in range(6)], limit=0)) == {None}


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0, 80), min_size=1), min_size=1, max_size=20)
)
def test_the_books_balance(steps: list[dict[str, float]]) -> None:
    """Over all phases, what was entered is the growth of the whole."""
    ledger = Ledger()
    ledger.charge(DEVICE, "outside", 0.0)
    for levels in steps:
        for phase, level in levels.items():
            ledger.charge(DEVICE, phase, level)
        ledger.close_step(DEVICE, LIMIT)
    last = list(steps[-1].values())[-1]

    assert sum(ledger.growth(DEVICE).values()) * len(steps) == pytest.approx(last, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({"generate": 1, "train": 5}, "train"),
        ({"onload": 20, "generate": 1, "offload": -21, "train": 2}, "train"),
        ({"wake_up": 20, "sleep": -15}, "sleep"),
        ({"offload_trainer": -30, "wake_up": 20, "sleep": -20, "train": 31}, "offload_trainer"),
        ({}, "outside"),
    ],
)
def test_who_is_to_blame(changes: dict[str, float], phase: str) -> None:
    """The phase that frees only a part, or else the phase that allocates what no phase frees."""
    assert blamed(changes) == phase


def test_phases_are_bounded() -> None:
    """A phase whose name changes with the step does not make the books longer and longer; they still balance."""
    ledger = Ledger()
    ledger.charge(DEVICE, "outside", 0.0)
    for step in range(500):
        ledger.charge(DEVICE, f"step {step}", float(step))
        ledger.leave(DEVICE, f"step {step}")
        ledger.close_step(DEVICE, LIMIT)

    assert len(ledger.residuals(DEVICE)) == 201
    assert sum(ledger.growth(DEVICE).values()) == pytest.approx(1)


@pytest.mark.parametrize(("limit", "steps"), [(900 << 20, [8]), (8 << 30, [])])
def test_a_small_limit_is_forecast_early(limit: int, steps: list[int]) -> None:
    """16 MiB a step fill 900 MiB soon; of a large limit, they are worth a line when they are a part of it."""
    ledger = Ledger()
    forecasts = []
    for number in range(35):
        level = (300 + 16 * number) * float(1 << 20)
        ledger.charge(DEVICE, "train", level)
        if ledger.close_step(DEVICE, limit, limit - level) is not None:
            forecasts.append(number)

    assert forecasts[:1] == steps


def test_a_small_limit_is_not_forecast_for_a_warm_up() -> None:
    """Memory that grows at first and then stays."""
    ledger = Ledger()
    for number in range(60):
        level = (300 + 150 * (1 - 0.7**number)) * float(1 << 20)
        ledger.charge(DEVICE, "train", level)

        assert ledger.close_step(DEVICE, 900 << 20, (900 << 20) - level) is None

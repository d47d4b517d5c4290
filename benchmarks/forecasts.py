"""How often forecasts of memory and reports of stragglers are wrong, and how long true ones take.

Run with `python -m benchmarks forecasts`: synthetic runs, from fixed seeds. The test suite runs a part of them.
"""

from __future__ import annotations

import math
import random
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import synthetic_ranks
from benchmarks.tables import Cell, Table
from otel_rl.analyses.memory.ledger import Account, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RUNS = 2000
STEPS = 300
GIB = float(1 << 30)
LIMIT = 80 * GIB
NOISE = 4e9
WORLDS = {4: 240, 8: 120, 64: 40}
"""Runs of synthetic ranks for each noise, by the number of ranks: 2,000 runs in all."""
_MEMORY = Account("rank0", "device_used")


def white_noise(dice: random.Random) -> Iterator[float]:
    """Yield levels that are independent of each other."""
    middle = dice.uniform(20, 60) * GIB
    while True:
        yield dice.gauss(middle, NOISE)


def autoregressive(dice: random.Random) -> Iterator[float]:
    """Yield AR(1) levels of the same spread, with a coefficient from 0.3 to 0.99."""
    middle, keeps = dice.uniform(20, 60) * GIB, dice.choice((0.3, 0.6, 0.9, 0.97, 0.99))
    level = dice.gauss(0, NOISE)
    while True:
        yield middle + level
        level = keeps * level + math.sqrt(1 - keeps**2) * dice.gauss(0, NOISE)


def random_walk(dice: random.Random) -> Iterator[float]:
    """Yield levels of a walk without a drift, with steps from 50 MB to 1 GB, that turns at the walls."""
    level, spread = dice.uniform(20, 60) * GIB, dice.choice((5e7, 2e8, 5e8, 1e9))
    while True:
        yield level
        level = max(2 * GIB, min(LIMIT - 2 * GIB, level + dice.gauss(0, spread)))


def sawtooth(dice: random.Random) -> Iterator[float]:
    """Yield levels of a cache that fills up by 4 GB in 2 to 60 steps, each time in others, and is emptied."""
    floor, height = dice.uniform(20, 60) * GIB, NOISE
    while True:
        length = dice.randint(2, 60)
        for n in range(length):
            yield floor + height * n / (length - 1) + dice.gauss(0, 5e7)


HEALTHY: dict[str, Callable[[random.Random], Iterator[float]]] = {
    "white noise": white_noise,
    "AR(1)": autoregressive,
    "random walk": random_walk,
    "sawtooth": sawtooth,
}
LEAKS = {"0.1 GiB a step": 0.1, "0.3 GiB a step": 0.3, "1 GiB a step": 1.0, "3 GiB a step": 3.0}
SPREADS = {"0.2 GB": 2e8, "1 GB": 1e9, "4 GB": NOISE}


def forecast_after(levels: Iterable[float]) -> int | None:
    """Return the number of steps after which a forecast is made for the first time; `None` if none is."""
    ledger = Ledger()
    for step, level in enumerate(levels):
        ledger.charge(_MEMORY, "generate", level)
        if ledger.close_step(_MEMORY, LIMIT) is not None:
            return step + 1
    return None


def false_forecasts(kind: str, runs: int, first_seed: int = 0) -> int:
    """Return in how many healthy runs memory is said to grow."""
    found = 0
    for seed in range(first_seed, first_seed + runs):
        levels = HEALTHY[kind](random.Random(seed))
        found += forecast_after(next(levels) for _ in range(STEPS)) is not None
    return found


def leak(slope: float, spread: float, seed: int) -> Iterator[float]:
    """Yield levels that grow from 10 GiB until memory is full, in noise."""
    dice = random.Random(seed)
    for step in range(STEPS * 10):
        level = 10 * GIB + slope * GIB * step + dice.gauss(0, spread)
        if level > LIMIT:
            return
        yield level


def measure() -> list[Table]:
    """Return the rates and delays."""
    return [_false_forecasts(), _leaks(), _false_stragglers(), _true_stragglers()]


def _false_forecasts() -> Table:
    rows: list[list[Cell]] = []
    for kind in HEALTHY:
        wrong = false_forecasts(kind, RUNS)
        rows.append([kind, RUNS, wrong, 100 * wrong / RUNS])
    note = f"Of {STEPS} steps each, on 80 GiB, with noise or teeth of 4 GB; stated: 5 % of the runs at most."
    return Table("False forecasts of exhausted memory", ["memory", "runs", "wrong", "%"], rows, note)


def _leaks() -> Table:
    rows: list[list[Cell]] = []
    for name, slope in LEAKS.items():
        for spread_name, spread in SPREADS.items():
            full = 70 / slope
            told = [forecast_after(leak(slope, spread, seed)) for seed in range(100)]
            found = [after for after in told if after is not None]
            delay = median(found) if found else None
            rows.append([f"{name}, noise {spread_name}", len(found), delay, full])
    columns = ["leak", "found of 100", "after steps (median)", "full after steps"]
    return Table("Forecasts of true leaks, from 10 GiB to 80 GiB", columns, rows)


def _false_stragglers() -> Table:
    rows: list[list[Cell]] = []
    for world, runs in WORLDS.items():
        for noise in synthetic_ranks.NOISES:
            wrong = sum(bool(synthetic_ranks.reported(world, noise, seed)) for seed in range(runs))
            rows.append([f"{world} ranks, noise {noise}", runs, wrong, 100 * wrong / runs])
    note = f"Of {synthetic_ranks.STEPS} steps of six phases each; stated: 5 % of the runs at most."
    return Table("Healthy ranks reported as stragglers", ["ranks", "runs", "wrong", "%"], rows, note)


def _true_stragglers() -> Table:
    rows: list[list[Cell]] = []
    for world in WORLDS:
        for noise in synthetic_ranks.NOISES:
            runs = 100 if world < 64 else 10
            slow = (world - 1, "update_actor")
            found = sum(slow in synthetic_ranks.reported(world, noise, seed, slow) for seed in range(runs))
            rows.append([f"{world} ranks, noise {noise}", runs, found, 100 * found / runs])
    note = "The last rank takes 30 % longer in one phase of six."
    return Table("True stragglers that are reported", ["ranks", "runs", "found", "%"], rows, note)

"""Writes the thresholds of `otel_rl.look.insight.level_test`, from simulated series without a change.

Run `python -m benchmarks.level_thresholds` after a change of the statistic; it takes minutes. The seeds are fixed.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from otel_rl.look.insight import level_test
from otel_rl.look.insight.level_test import CHANCE, Thresholds, likeliest

if TYPE_CHECKING:
    from otel_rl.look.insight.series import Floats

LENGTHS = (16, 24, 36, 54, 80, 120, 200, 340, 600, 1024)
_TRUE = (0.0, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95)
_SERIES = 20_000
_BATCH = 250
_ROUNDS = 10
_OFTEN = 0.1
_STEP = 0.4
"""Part of the distance to the right threshold, in logarithms of the chance, that is gone in a round."""


def noise(chance: np.random.Generator, series: int, length: int, correlation: float) -> Floats:
    """Return series of AR(1) noise with a standard deviation of 1."""
    shocks = chance.normal(size=(series, length))
    shocks[:, 1:] *= math.sqrt(1 - correlation**2)
    for n in range(1, length):
        shocks[:, n] += correlation * shocks[:, n - 1]
    return shocks


def main() -> None:
    """Simulate, and write."""
    rows = [_of_length(length) for length in LENGTHS]
    known = Thresholds(list(LENGTHS), *([list(column) for column in zip(*rows, strict=True)]))
    path = Path(level_test.__file__).with_name("level_thresholds.json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")


def _rate(drawn: tuple[Floats, Floats], means: Floats, limits: Floats) -> float:
    statistics, estimates = drawn
    return float((statistics > np.interp(estimates, means, limits)).mean())


def _of_length(length: int) -> tuple[list[float], list[float], list[float]]:
    """Return estimated correlations, with the threshold and the slope of each."""
    chance = np.random.default_rng(length)
    simulated = []
    for correlation in _TRUE:
        parts = [likeliest(noise(chance, _BATCH, length, correlation)) for _ in range(_SERIES // _BATCH)]
        simulated.append(
            (np.concatenate([part.statistic for part in parts]), np.concatenate([part.correlation for part in parts]))
        )
    means = np.maximum.accumulate([estimates.mean() for _, estimates in simulated]) + 1e-3 * np.arange(len(_TRUE))
    limits = np.array([np.quantile(statistics, 1 - CHANCE) for statistics, _ in simulated])
    # The estimate scatters, so that each threshold is also that of other correlations: all are raised until all hold.
    for _ in range(_ROUNDS):
        rates = np.array([_rate(drawn, means, limits) for drawn in simulated])
        limits = np.maximum.accumulate(limits + _STEP * np.log(np.maximum(rates, 1e-4) / CHANCE))
    while max(_rate(drawn, means, limits) for drawn in simulated) > CHANCE:
        limits += 0.1
    often = [
        np.quantile(statistics - np.interp(estimates, means, limits), 1 - _OFTEN) for statistics, estimates in simulated
    ]
    slopes = np.maximum(2.0, -np.array(often) / math.log(_OFTEN / CHANCE))
    print(length, means.round(2), limits.round(1), slopes.round(2), flush=True)
    return means.round(3).tolist(), limits.round(2).tolist(), slopes.round(2).tolist()


if __name__ == "__main__":
    main()

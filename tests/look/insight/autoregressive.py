"""Synthetic metrics of steps that depend on the step before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.series import Series

if TYPE_CHECKING:
    from otel_rl.look.insight.series import Floats


def noise(chance: np.random.Generator, count: int, correlation: float) -> Floats:
    """Return values with a standard deviation of 1, each of which depends on the one before."""
    values = chance.normal(size=count + 50)
    for n in range(1, len(values)):
        values[n] = correlation * values[n - 1] + math.sqrt(1 - correlation**2) * values[n]
    return values[50:]


def times(chance: np.random.Generator, correlation: float, variation: float, slower: float = 0.0) -> Series:
    """Return the times of 100 steps, of which the first one warms up."""
    values = 40 * np.exp(variation * noise(chance, 100, correlation)) * (1 + slower)
    values[0] *= 3
    return Series(np.arange(100), values)

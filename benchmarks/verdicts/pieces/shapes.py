"""Courses of a value over the steps of a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Course: TypeAlias = Callable[[int, np.random.Generator], NDArray[np.float64]]
"""Returns the values of all steps, given their number and a source of chance."""


def _noise(steps: int, chance: np.random.Generator, size: float, correlation: float = 0.4) -> NDArray[np.float64]:
    shocks = chance.normal(0, size * np.sqrt(1 - correlation**2), steps)
    values = np.zeros(steps)
    for at in range(steps):
        values[at] = (correlation * values[at - 1] if at else 0) + shocks[at]
    return values


def steady(level: float, noise: float) -> Course:
    """Vary around one level."""
    return lambda steps, chance: level + _noise(steps, chance, noise)


def line(first: float, last: float, noise: float, begin: float = 0.0, end: float = 1.0) -> Course:
    """Go from one level to another between two fractions of the training."""

    def course(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
        part = np.clip((np.arange(steps) / steps - begin) / max(end - begin, 1e-9), 0, 1)
        return first + (last - first) * part + _noise(steps, chance, noise)

    return course


def decay(first: float, last: float, noise: float, rate: float = 4.0) -> Course:
    """Approach a level exponentially; noise shrinks with the distance to 0."""

    def course(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
        level = last + (first - last) * np.exp(-rate * np.arange(steps) / steps)
        return level * (1 + _noise(steps, chance, noise))

    return course


def constant(value: float) -> Course:
    """Be the same number in all steps."""
    return lambda steps, chance: np.full(steps, value)


def at(step: int, value: float, otherwise: Course, until: int | None = None) -> Course:
    """Be one number from a step on, and before as `otherwise` says."""

    def course(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
        values = otherwise(steps, chance)
        values[step:until] = value
        return values

    return course


def bounded(course: Course, low: float, high: float) -> Course:
    """Stay between two numbers."""
    return lambda steps, chance: np.clip(course(steps, chance), low, high)


def quantized(course: Course, count: int) -> Course:
    """Be a multiple of 1/`count`, as the mean of so many outcomes that are 0 or 1."""
    return lambda steps, chance: np.clip(np.round(course(steps, chance) * count) / count, 0, 1)


def total(weights: dict[str, float], parts: dict[str, Course], name: str = "reward") -> dict[str, Course]:
    """Return the parts under `rewards/…` and their weighted sum, which come from the same draws."""
    seeds = {part: index + 101 for index, part in enumerate(parts)}

    def drawn(part: str) -> Course:
        return lambda steps, _: parts[part](steps, np.random.default_rng(seeds[part]))

    def summed(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
        columns = np.stack([weights[part] * drawn(part)(steps, chance) for part in parts])
        return np.asarray(columns.sum(axis=0), dtype=np.float64)

    return {f"rewards/{part}/mean": drawn(part) for part in parts} | {name: summed}

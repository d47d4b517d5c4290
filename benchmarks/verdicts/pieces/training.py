"""A training whose values follow given courses, with phases that take given times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from benchmarks.verdicts.pieces.recording import Recording
from benchmarks.verdicts.pieces.shapes import Course, steady

Also: TypeAlias = Callable[[Recording, int, np.random.Generator], None]
"""Records more in a step, given its number."""

USUAL: dict[str, Course] = {
    "loss": steady(0.05, 0.02),
    "grad_norm": steady(0.6, 0.08),
    "learning_rate": lambda steps, chance: np.full(steps, 1e-6),
}
"""Values that every trainer logs."""
SHORT: dict[str, Course] = {"generate": steady(0.006, 0.0004), "update_actor": steady(0.003, 0.0002)}
"""Seconds of phases that do not matter."""


def train(
    recording: Recording,
    values: dict[str, Course],
    *,
    steps: int = 300,
    config: dict[str, Any] | None = None,
    phases: dict[str, Course] | None = None,
    driver: Course | None = None,
    also: Also | None = None,
    seed: int = 7,
    usual: dict[str, Course] | None = None,
    **settings: Any,
) -> None:
    """Record `values` of all steps; phases sleep so many seconds, and so does the driver outside of phases.

    The plain form logs the times of phases as values, as frameworks do.
    """
    chance = np.random.default_rng(seed)
    columns = {name: course(steps, chance) for name, course in ((USUAL if usual is None else usual) | values).items()}
    times = {name: np.maximum(0, course(steps, chance)) for name, course in (phases or SHORT).items()}
    outside = driver(steps, chance) if driver else np.zeros(steps)
    recording.begin(config={"learning_rate": 1e-6, "max_steps": steps} | (config or {}), **settings)
    for number in range(steps):
        began = time.monotonic()
        with recording.step(number):
            for name, seconds in times.items():
                with recording.phase(name):
                    time.sleep(seconds[number])
            time.sleep(max(0.0, outside[number]))
            row = {name: float(column[number]) for name, column in columns.items()}
            if phases and not recording.has_calls:
                row |= {f"timing_s/{name}": float(seconds[number]) for name, seconds in times.items()}
                row["timing_s/step"] = time.monotonic() - began
            recording.log(row)
            if also:
                also(recording, number, chance)
    recording.finish()

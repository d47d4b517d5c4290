"""Synthetic steps of ranks that wait for each other, for `forecasts`."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from otel_rl.analyses.stragglers import Stragglers
from otel_rl.export import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PHASES = {"generate": 2.0, "reward": 0.5, "old_log_prob": 1.0, "advantage": 0.01, "update_actor": 1.5}
SYNC = "weight_sync"
STEPS = 150
_SLOWER = 1.3


def _student(dice: random.Random) -> float:
    """Return 1 and a tenth of Student's t with two degrees of freedom, which has no variance."""
    return max(0.1, 1 + 0.1 * dice.gauss(0, 1) / math.sqrt(dice.expovariate(1)))


NOISES: Mapping[str, Callable[[random.Random], float]] = {
    "3 %": lambda dice: max(0.1, dice.gauss(1, 0.03)),
    "20 %": lambda dice: max(0.1, dice.gauss(1, 0.2)),
    "log-normal, 50 %": lambda dice: dice.lognormvariate(0, 0.5),
    "Student's t": _student,
    "Pareto": lambda dice: dice.paretovariate(1.5),
}
"""Factors by which a phase takes longer, drawn for each step and each rank."""


def steps(world: int, noise: str, seed: int, slow: tuple[int, str] | None) -> Iterator[list[Span]]:
    """Yield the spans of each step: five phases, and one in which all ranks wait for the last."""
    dice, vary = random.Random(seed), NOISES[noise]
    now = 10.0
    for _ in range(STEPS):
        spans, ends = [], []
        for rank in range(world):
            time = now
            for phase, takes in PHASES.items():
                took = takes * vary(dice) * (_SLOWER if (rank, phase) == slow else 1)
                spans.append(_span(phase, rank, time, time + took))
                time += took
            ends.append(time)
        now = max(ends) + 0.2
        spans += [_span(SYNC, rank, end, now) for rank, end in enumerate(ends)]
        yield spans


def reported(world: int, noise: str, seed: int, slow: tuple[int, str] | None = None) -> set[tuple[int, str]]:
    """Return which ranks are reported as stragglers in a run, and in which phases."""
    stragglers = Stragglers()
    found = (stragglers.add(spans) for spans in steps(world, noise, seed, slow))
    return {(one.rank, one.phase) for of_step in found for one in of_step}


def _span(phase: str, rank: int, start: float, end: float) -> Span:
    times = round(start * 1e9), round(end * 1e9)
    return Span(phase, "", "", "", *times, {"rl.phase": phase, "rl.rank": rank})

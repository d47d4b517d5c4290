"""How often `otel-rl why` is right about simulated steps with a planted delay, and how long it takes for a large step.

Run with `python -m benchmarks why`, on request only. The test suite explains a part of the steps.
"""

from __future__ import annotations

import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np

import otel_rl
from benchmarks.tables import Cell, Table
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.look.insight.why.step_spans import SpanWork
from tests.look.insight.pipelines import KINDS, Pipeline, Plant, Simulation, case, explained

STEPS = 1000
_LARGE = Pipeline("synchronous", 1, 8, 16, 64, 5300, 6, 4, steps=6, plant=Plant("tool", 4, 2000, 200.0))
_ROUNDS = 5
_NEAR = 0.05


def measure() -> list[Table]:
    """Return how often causes and savings are right, by kind of training, and the times of a large step."""
    return [_answers(), _times()]


def _answers() -> Table:
    found: dict[str, list[tuple[bool, float | None, float]]] = {kind: [] for kind in KINDS}
    for seed in count(100_000):
        if sum(map(len, found.values())) == STEPS:
            break
        one = case(seed, clocks=0.05 * (seed % 2))
        if one is None:
            continue
        with tempfile.TemporaryDirectory() as place:
            answer = explained(one, Path(place, "run"))
        first, wall = answer.parts[0], answer.seconds
        error = None if first.saves_seconds is None else abs(first.saves_seconds - one.seconds) / wall
        gap = abs(sum(part.seconds for part in answer.parts) - wall) / wall
        found[one.pipeline.kind].append((SpanWork(first.kind, first.name) == one.pipeline.expected(), error, gap))
    rows: list[list[Cell]] = []
    for kind, those in found.items():
        errors = np.array([error for _, error, _ in those if error is not None])
        right, near = sum(is_right for is_right, *_ in those), int(np.count_nonzero(errors <= _NEAR))
        middle, worst = round(100 * float(np.median(errors)), 2), max(gap for *_, gap in those)
        rows.append([kind, len(those), right, len(errors), near, middle, f"{worst:.0e}"])
    head = ["training", "steps", "first part right", "replayed", "within 5 %", "median error, %", "gap of the parts"]
    note = "Errors of the predicted saving are fractions of the step. Clocks differ by up to 50 ms in half of them."
    return Table("Simulated steps with one planted delay", head, rows, note)


def _times() -> Table:
    with tempfile.TemporaryDirectory() as place:
        Simulation(_LARGE).write(Path(place, "run"))
        run = otel_rl.open_run(Path(place, "run"))
        spans = int(run.sql("SELECT count(*) AS n FROM spans WHERE step = 4 OR step IS NULL")["n"][0]) // _LARGE.steps
        times = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            explained_steps(run, (4, 4))
            times.append(time.perf_counter() - began)
    row: list[Cell] = [f"{spans:,}", round(median(times), 2), round(min(times), 2)]
    return Table("A large step", ["spans of the step", "median, s", "best, s"], [row], f"{_ROUNDS} rounds.")

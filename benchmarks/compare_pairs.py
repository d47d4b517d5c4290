"""How often gates of `otel-rl compare` are beyond between runs of one setup: runs of the demo, and synthetic ones.

Run with `python -m benchmarks compare`, on request only, since it trains for 10 minutes. `COMPARE_RUNS=DIRECTORY` keeps
the runs there, and the next time they are compared without being trained again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import otel_rl
from benchmarks.tables import Cell, Table
from otel_rl.look.insight.compare.conclude import compare
from otel_rl.look.insight.compare.difference import difference
from otel_rl.look.insight.compare.gates import MetricGate, gates_of
from tests.look.insight.autoregressive import times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.insight.compare.gates import Decision
    from otel_rl.look.reader.runs import RunReader

RUNS = 10
STEPS = 50
PAIRS = 200
SYNTHETIC_PAIRS = 2_000
_GATES = "throughput:-0%,step_time:+0%,reward:-0,completion_length:+0"
_DECISIONS: tuple[Decision, ...] = ("beyond", "within", "unknown")
_NOTE = "Each answer may be wrong in 5 of 100 cases. A gate on what the policy does needs several runs a side."


def measure() -> list[Table]:
    """Return how often gates without a margin are beyond, within, or cannot tell, between equal setups."""
    with tempfile.TemporaryDirectory() as temporary:
        place = os.environ.get("COMPARE_RUNS", temporary)
        runs = [_trained(Path(place, str(seed)), seed) for seed in range(RUNS)]
        singles = [((one,), (other,)) for one, other in combinations(runs, 2)]
        chance = np.random.default_rng(1)
        chosen = [[runs[at] for at in chance.permutation(RUNS)[:4]] for _ in range(PAIRS)]
        doubles = [(four[:2], four[2:]) for four in chosen]
        rows = [*_of_runs("1 and 1 run", singles), *_of_runs("2 and 2 runs", doubles)]
    head = ["gate", "sides", "pairs", "beyond", "within", "cannot tell"]
    return [
        Table(f"{RUNS} runs of the demo that differ by the seed, {STEPS} steps each", head, rows, _NOTE),
        Table("Synthetic times of 100 steps", ["correlation of steps", *head[2:]], list(_synthetic())),
    ]


def _trained(place: Path, seed: int) -> RunReader:
    command = [sys.executable, "-m", "otel_rl.cli", "demo", "--to", "jsonl", "--dir", str(place)]
    if not place.exists():
        subprocess.run([*command, "--steps", str(STEPS), "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
    (run,) = place.glob("*/*")
    return otel_rl.open_run(run)


def _of_runs(sides: str, pairs: Sequence[tuple[Sequence[RunReader], Sequence[RunReader]]]) -> Iterable[list[Cell]]:
    gates = gates_of(_GATES)
    answers = [compare(base, new, gates) for base, new in pairs]
    for at, gate in enumerate(gates):
        counts = Counter(answer.gates[at].decision for answer in answers)
        yield [str(gate), sides, len(pairs), *(counts[one] for one in _DECISIONS)]


def _synthetic() -> Iterable[list[Cell]]:
    gate, chance = MetricGate("step_time", 0.0, may_grow=True, is_relative=True), np.random.default_rng(1)
    for correlation in (0.0, 0.5, 0.8):
        pairs = [[[times(chance, correlation, 0.06)] for _ in range(2)] for _ in range(SYNTHETIC_PAIRS)]
        counts = Counter(gate.decide(difference(*pair, is_relative=True)) for pair in pairs)
        yield [str(correlation), SYNTHETIC_PAIRS, *(counts[one] for one in _DECISIONS)]

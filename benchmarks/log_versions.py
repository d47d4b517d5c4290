"""The cost of `run.log` and of a phase in two checkouts, in turns: `python -m benchmarks versions --against PYTHON`.

It runs on request only. PYTHON is the interpreter of an environment that has the other checkout. Each pair of processes
takes turns. Where a process is in memory changes its speed by some percent, so there are several pairs, and pairs of
this checkout alone.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.recording import directory, end_agent
from benchmarks.tables import Cell, Table

PAIRS = 4
ROUNDS = 30
CALLS = 300
_SIZES = (1, 100, 0)
"""The numbers of values in a call of `run.log`; with 0, a phase is measured."""
_SETTLE_S = 0.02
_WORKER = """
import itertools, statistics, sys, time
import otel_rl

run = otel_rl.init(
    project="benchmark", dir=sys.argv[1], rank=0, world_size=1, exporters=["jsonl"], hardware=False, quiet=True,
    **({"output": sys.argv[2] == "True"} if sys.argv[2] else {}),
)
names = [f"actor/metric_{index:03d}" for index in range(100)]
clock = time.perf_counter_ns
print(run.dir, flush=True)
for number, line in enumerate(sys.stdin):
    size, calls = map(int, line.split())
    batches = [{name: index * 1.1 + seed / 7 for index, name in enumerate(names[:size])} for seed in range(64)]
    values, log, took = itertools.cycle(batches), run.log, []
    with run.step(number):
        for _ in range(calls if size else 0):
            given = next(values)
            began = clock()
            log(given)
            took.append(clock() - began)
        for _ in range(0 if size else calls):
            began = clock()
            with run.phase("x"):
                pass
            took.append(clock() - began)
    print(statistics.median(took), flush=True)
run.finish(0)
"""


class Side(NamedTuple):
    """One side of a comparison.

    Attributes:
        python: The interpreter of a checkout.
        output: The setting `output` of its runs, "True" or "False"; by default that of the checkout.
    """

    python: str
    output: str = ""


class _Worker:
    """A process that logs."""

    def __init__(self, side: Side, place: Path, stack: ExitStack) -> None:
        command = [side.python, "-c", _WORKER, str(place), side.output]
        self._process = stack.enter_context(
            subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        run = place / self._line()
        stack.callback(lambda: end_agent(run))
        stack.callback(self._process.communicate)

    def log(self, size: int) -> float:
        """Return the median time of a call with so many values, in nanoseconds."""
        assert self._process.stdin is not None
        print(size, CALLS, file=self._process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def measure(*, against: str) -> list[Table]:
    """Return how much slower `run.log` and a phase are than in another checkout, and than itself.

    Args:
        against: The interpreter of an environment with the other checkout.
    """
    others = {_commit(against): against, "this one, as a control": sys.executable}
    here = Side(sys.executable)
    pairs = {name: [pair(here, Side(other)) for _ in range(PAIRS)] for name, other in others.items()}
    rows = [_row(size, name, [pair[size] for pair in found]) for size in _SIZES for name, found in pairs.items()]
    columns = ["what, and against what", "p50 µs", "against, p50 µs", "ratio", "lowest pair", "highest pair"]
    note = (
        f"{PAIRS} pairs of processes, {ROUNDS} rounds of {CALLS} calls each. The ratio is the median over all rounds."
    )
    return [
        Table(f"`run.log` and phases of {_commit(sys.executable)} and of another commit, in turns", columns, rows, note)
    ]


def pair(*sides: Side) -> dict[int, list[tuple[float, float]]]:
    """Return the nanoseconds of two sides in each round, by the number of values."""
    took: dict[int, list[tuple[float, float]]] = {size: [] for size in _SIZES}
    with directory() as place, ExitStack() as stack:
        workers = [_Worker(side, place, stack) for side in sides]
        for number in range(-1, ROUNDS):  # the first one warms up
            for size in _SIZES:
                order = (0, 1) if number % 2 else (1, 0)
                found = {}
                for index in order:
                    time.sleep(_SETTLE_S)
                    found[index] = workers[index].log(size)
                if number >= 0:
                    took[size].append((found[0], found[1]))
    return took


def _commit(python: str) -> str:
    """Return the commit that an environment has."""
    place = subprocess.check_output([python, "-c", "import otel_rl; print(otel_rl.__path__[0])"], cwd="/", text=True)
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(command, cwd=Path(place.strip()), text=True).strip()


def _row(size: int, name: str, pairs: list[list[tuple[float, float]]]) -> list[Cell]:
    return [f"{f'log of {size}' if size else 'phase'}, {name}", *ratios(pairs)]


def ratios(pairs: list[list[tuple[float, float]]]) -> list[Cell]:
    """Return the microseconds of both sides, and their ratio: of all rounds, of the lowest and of the highest pair."""
    rounds = [each for pair in pairs for each in pair]
    this, other = (statistics.median(each[index] for each in rounds) / 1e3 for index in (0, 1))
    overall, *each = (statistics.median(mine / against for mine, against in one) for one in [rounds, *pairs])
    return [this, other, *(f"{ratio:.3f}" for ratio in (overall, min(each), max(each)))]

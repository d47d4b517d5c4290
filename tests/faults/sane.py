"""A sane journal of a training, record by record, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

from otel_rl.recorder.journal.records import Logged, Record, Started, StepEnded, StepStarted
from tests.processes import rows_of

T0 = 1_700_000_000_000_000_000
STEP_NS = 1_000_000


def started(rank: int = 0, world: int = 1) -> Started:
    return Started("run", 0, rank, world, world, "", 1, "host", 4096, T0)


def steps(*numbers: int) -> list[Record]:
    """Return sane steps, each with a loss that is its number."""
    found: list[Record] = []
    for n in numbers:
        at = T0 + n * STEP_NS
        found += [StepStarted(n, at, b""), Logged(n, at + 1, {"loss": float(n)}), StepEnded(n, at + 2, b"")]
    return found


def losses(run_dir: Path) -> list[float]:
    return [row["values"]["loss"] for row in rows_of(run_dir) if "loss" in row["values"]]  # type: ignore[operator, index]

"""The time that an import adds to the start of Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.tables import Cell, Table

_BASE = "pass"
_STATEMENTS = (
    _BASE,
    "import otel_rl",
    "import opentelemetry.sdk.trace",
    "import opentelemetry.trace",
    "import msgspec",
    "import tensorboard.summary.writer.event_file_writer",
    "import wandb",
    "import torch",
)
_ROUNDS = 11


def measure() -> list[Table]:
    """Return milliseconds above `python -c pass`, each in a process of its own, in turns."""
    took: dict[str, list[float]] = {statement: [] for statement in _STATEMENTS}
    for number in range(-1, _ROUNDS):  # the first round fills the page cache
        for statement in _STATEMENTS:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            if number >= 0:
                took[statement].append(1e3 * (time.perf_counter() - began))
    rows: list[list[Cell]] = [
        [statement, min(took[statement]) - min(took[_BASE]), _extra(took[statement], took[_BASE])]
        for statement in _STATEMENTS[1:]
    ]
    note = (
        f"Target: `import otel_rl` ≤ 60 ms. Python itself: best {min(took[_BASE]):.0f} ms, "
        f"median {statistics.median(took[_BASE]):.0f} ms; {_ROUNDS} rounds."
    )
    return [Table("Import, above `python -c pass`", ["statement", "best ms", "median ms"], rows, note)]


def _extra(took: list[float], base: list[float]) -> float:
    return statistics.median(one - other for one, other in zip(took, base, strict=True))

"""What recording adds to a training with TRL: a GRPOTrainer with a model so small that nothing else takes time."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.tables import Table

_TRAINER = Path(__file__).parents[1] / "tests" / "frameworks" / "grpo.py"
_ROUNDS, _STEPS = 5, 40
_RUN = f"""
import json, sys, time
sys.path.insert(0, {str(_TRAINER.parent)!r})
if sys.argv[1] == "recorded":
    from otel_rl.integrations.instrument import instrument
    instrument()
import grpo
trainer = grpo.trainer({_STEPS})
ends = []
original = trainer.training_step
def training_step(*args, **kwargs):
    ends.append(time.perf_counter())
    return original(*args, **kwargs)
trainer.training_step = training_step
trainer.train()
steps = [(b - a) * 1e3 for a, b in zip(ends[20::2], ends[22::2])]
print(json.dumps(steps))
"""


def measure() -> list[Table]:
    """Return the time of a step with and without otel-rl, in turns."""
    title = "A step of TRL's GRPOTrainer"
    if importlib.util.find_spec("trl") is None:
        return [Table(title, ["what"], [["TRL is not installed"]], "")]
    found: dict[str, list[float]] = {"plain": [], "recorded": []}
    ratios = []
    for _ in range(_ROUNDS):
        of_round = {name: statistics.median(_steps(name)) for name in found}
        ratios.append(of_round["recorded"] / of_round["plain"])
        for name, milliseconds in of_round.items():
            found[name].append(milliseconds)
    rows: list[list[str | float | int | bool | None]] = [
        [name, statistics.median(milliseconds), min(milliseconds)] for name, milliseconds in found.items()
    ]
    rows.append(["ratio", statistics.median(ratios), min(ratios)])
    note = (
        f"{_ROUNDS} rounds, in turns, of {_STEPS} steps, the first ten left out; medians. The model has two layers of "
        "width 32, so that a step is as short as TRL can make it; every step is logged and every third one evaluated "
        "and saved. The agent works meanwhile, on the same two cores."
    )
    return [Table(title, ["what", "median of rounds, ms", "best, ms"], rows, note)]


def _steps(how: str) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as directory:
        told = os.environ | {"HF_HUB_OFFLINE": "1", "OTEL_RL_EXPORTERS": "jsonl", "OTEL_METRICS_EXPORTER": "none"}
        command = [sys.executable, "-c", _RUN, how]
        done = subprocess.run(command, cwd=directory, env=told, check=True, capture_output=True, text=True)
        steps: list[float] = json.loads(done.stdout.splitlines()[-1])
        return steps

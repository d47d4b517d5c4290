"""`python -m benchmarks.trainer DIR STEPS PAUSE`: a trainer in a process of its own; prints an `Outcome` as JSON."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

import otel_rl
from benchmarks.peers import batches
from benchmarks.recording import end_agent, record_step
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories

_TIMEOUT_S = 5.0


class Outcome(msgspec.Struct, frozen=True):
    """The measurements of a trainer.

    Attributes:
        took: Nanoseconds of each `log`.
        finish_s: Seconds that `finish(timeout=5)` took.
        delivered: The result of `finish`.
        rows: How many steps the local JSONL file had by then.
        failures: How often the agent's deliveries had failed by then.
    """

    took: list[int]
    finish_s: float
    delivered: bool
    rows: int
    failures: int


def train(directory: Path, steps: int, pause_s: float) -> Outcome:
    """Record steps of 100 floats and five phases, then finish."""
    os.environ["OTEL_RL_IDLE_TIMEOUT"] = "2"
    run = otel_rl.init(project="benchmark", dir=directory, exporters=["jsonl"], quiet=True)
    values = batches()
    took = []
    for number in range(steps):
        took.append(record_step(run, number, next(values)))
        time.sleep(pause_s)
    began = time.perf_counter()
    delivered = bool(run.finish(_TIMEOUT_S))
    finish_s = time.perf_counter() - began
    rows = len((run.dir / "rows.jsonl").read_bytes().splitlines())
    failures = sum(agent_start.read_status(directories.at(run.dir)).failures.values())
    end_agent(run.dir)
    return Outcome(took, finish_s, delivered, rows, failures)


if __name__ == "__main__":
    outcome = train(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    os.write(1, msgspec.json.encode(outcome))

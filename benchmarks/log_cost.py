"""The cost for the trainer of `run.log` with 100 floats, compared with what trainers use today."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import peers
from benchmarks.measuring import TIMER, Contestant, Round, cost, interleave, ratio
from benchmarks.recording import recording
from benchmarks.tables import Cell, Table

_OURS = "otel_rl run.log"


def measure() -> list[Table]:
    """Return the cost in a tight loop, and after pauses, when the caches hold something else."""
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as name, ExitStack() as stack:
        directory = Path(name)
        run = stack.enter_context(recording(directory))
        stack.enter_context(run.step(0))
        values = peers.batches()
        contestants = [Contestant(_OURS, lambda: run.log(next(values)))]
        opened = (
            peers.json_lines(directory),
            peers.tensorboard_event(directory / "events"),
            peers.torch_summary_writer(directory / "torch"),
            peers.otel_gauges(),
            peers.wandb_offline(directory),
        )
        contestants += [stack.enter_context(peer) for peer in opened]
        contestants.append(TIMER)
        tight = interleave(contestants, rounds=15, calls=300)
        paused = interleave(contestants, rounds=5, calls=100, pause_s=0.005)
    return [
        _table(
            "100 floats, one call after the other",
            tight,
            "Target: p50 of `run.log` ≤ 8 µs. Durable on return: `run.log` and the flushed JSON line.",
        ),
        _table("100 floats, each call after a pause of 5 ms", paused, "Nearer to a trainer: the caches are cold."),
    ]


def _table(title: str, found: dict[str, list[Round]], note: str) -> Table:
    rows: list[list[Cell]] = [[name, *cost(one), ratio(one, found[_OURS])] for name, one in found.items()]
    return Table(title, ["call", "p50 µs", "p99 µs", "worst µs", "p50 ÷ run.log"], rows, note)

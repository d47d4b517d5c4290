"""The cost for the trainer of `run.log` with 100 floats, compared with what trainers use today."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.measuring import TIMER, Contestant, compared, interleave
from benchmarks.recording import directory, recording

if TYPE_CHECKING:
    from benchmarks.tables import Table

_OURS = "otel_rl run.log"


def measure() -> list[Table]:
    """Return the cost in a tight loop, and after pauses, when the caches hold something else."""
    with directory() as place, ExitStack() as stack:
        run = stack.enter_context(recording())
        stack.enter_context(run.step(0))
        values = peers.batches()
        contestants = [Contestant(_OURS, lambda: run.log(next(values)))]
        opened = (
            peers.json_lines(place),
            peers.tensorboard_event(place / "events"),
            peers.torch_summary_writer(place / "torch"),
            peers.otel_gauges(),
            peers.wandb_offline(place),
        )
        contestants += [stack.enter_context(peer) for peer in opened]
        contestants.append(TIMER)
        tight = interleave(contestants, rounds=15, calls=300)
        paused = interleave(contestants, rounds=5, calls=100, pause_s=0.005)
    target = "Target: p50 of `run.log` ≤ 8 µs. Durable on return: `run.log` and the flushed JSON line."
    cold = "Nearer to a trainer: the caches are cold."
    return [
        compared("100 floats, one call after the other", tight, _OURS, target, short="run.log"),
        compared("100 floats, each call after a pause of 5 ms", paused, _OURS, cold, short="run.log"),
    ]

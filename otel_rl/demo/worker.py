"""One rank of the demo: `python -m otel_rl.demo.worker OPTIONS` is what the ranks after the first run."""

from __future__ import annotations

import os
import signal
import sys

import otel_rl
from otel_rl.demo import ranks
from otel_rl.demo.grpo import train
from otel_rl.demo.options import Options

DELIVERY_S = 30
INTERRUPTED = 128 + signal.SIGINT


def start_recording(options: Options) -> otel_rl.Run:
    """The run as every rank opens it; rank and world size come from the environment."""
    offline = {"wandb": {"mode": os.environ.get("WANDB_MODE", "offline")}}
    return otel_rl.init(
        project="otel-rl-demo",
        name="grpo-arithmetic",
        config=options.config(),
        exporters=[offline if name == "wandb" else name for name in options.exporters],
        dir=options.dir,
    )


def train_here(run: otel_rl.Run, options: Options) -> None:
    """Train as the rank this process is."""
    train(run, options, ranks.join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))


def main(options: Options) -> int:
    """A rank without a display; rank 0 stops it with SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; rank 0 decides
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = start_recording(options)
    try:
        train_here(run, options)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        ranks.leave()
        delivered = run.finish(timeout=DELIVERY_S)
    return 0 if delivered else 1


if __name__ == "__main__":
    sys.exit(main(Options.from_json(sys.argv[1])))

"""The processes of the demo: rank 0 starts the others, as torchrun would, and shows the run on the terminal.

`python -m otel_rl.demo.processes OPTIONS` is one of the other ranks.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

import msgspec

import otel_rl
from otel_rl.demo import ranks
from otel_rl.demo.grpo import train
from otel_rl.demo.options import Options

if TYPE_CHECKING:
    from rich.console import Console

DELIVERY_S = 30
"""How long `finish` may take to deliver the rows of a rank."""

LAST_ROW_S = 12
"""How long `--hold` waits for the last row; no next step closes it, so it waits for the row deadline."""

EXIT_S = 40
"""How long rank 0 waits for the other ranks to exit; they need up to `DELIVERY_S` to deliver."""

INTERRUPTED = 128 + signal.SIGINT


def perform(options: Options, console: Console, *, hold: bool) -> int:
    """Run the demo as rank 0; return the exit code. With `hold`, the metrics endpoint stays up until Ctrl-C."""
    from otel_rl.demo.screen import Screen, print_summary

    os.environ.update(_shared_environment(options.ranks) | _rank_environment(0))
    run = _start_recording(options)
    others = [
        subprocess.Popen(
            [sys.executable, "-m", "otel_rl.demo.processes", msgspec.json.encode(options)],
            env={**os.environ, **_rank_environment(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(1, options.ranks)
    ]
    title = f"GRPO on arithmetic, {options.ranks} rank{'s' if options.ranks > 1 else ''}"
    try:
        with Screen(console, run.dir, steps=options.steps, title=title) as screen:
            complete = _train_all(run, options, others)
            if hold and complete:
                screen.wait_for_rows(LAST_ROW_S)
            else:
                run.finish(timeout=DELIVERY_S)
        print_summary(console, screen.rows, run, ranks=options.ranks, held=hold and complete)
        if hold and complete:
            _hold(console)
    finally:
        delivered = run.finish(timeout=DELIVERY_S)
        _wait_for(others)
    if not complete:
        return INTERRUPTED
    if not delivered:
        console.print(f"[red]some rows were not delivered within {DELIVERY_S} s; they remain in {run.dir}")
    return 0 if delivered else 1


def _start_recording(options: Options) -> otel_rl.Run:
    """Open the run, as every rank does; rank and world size come from the environment."""
    offline = {"wandb": {"mode": os.environ.get("WANDB_MODE", "offline")}}
    return otel_rl.init(
        project="otel-rl-demo",
        name="grpo-arithmetic",
        config=options.config(),
        exporters=[offline if name == "wandb" else name for name in options.exporters],
        dir=options.dir,
    )


def _train_here(run: otel_rl.Run, options: Options) -> None:
    """Train as the rank that the environment names."""
    try:
        train(run, options, ranks.join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
    finally:
        ranks.leave()


def _train_all(run: otel_rl.Run, options: Options, others: list[subprocess.Popen[bytes]]) -> bool:
    """Train on all ranks; return False if Ctrl-C ended the training."""
    try:
        _train_here(run, options)
    except BaseException as error:
        for process in others:
            process.terminate()
        if isinstance(error, KeyboardInterrupt):
            return False
        raise
    return True


def _hold(console: Console) -> None:
    """Wait for Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.print("\nholding, so that the metrics stay up; Ctrl-C ends the run")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print("ending the run")


def _shared_environment(world_size: int) -> dict[str, str]:
    """Return the variables that all ranks share: the identity of the run, and where the ranks connect."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "OTEL_RL_RUN_ID": uuid.uuid4().hex,
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _rank_environment(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


def _wait_for(others: list[subprocess.Popen[bytes]]) -> None:
    for process in others:
        try:
            process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(options: Options) -> int:
    """Run the demo as one of the other ranks, without a display; rank 0 stops it with SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; rank 0 decides
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = _start_recording(options)
    try:
        _train_here(run, options)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        delivered = run.finish(timeout=DELIVERY_S)
    return 0 if delivered else 1


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Options)))

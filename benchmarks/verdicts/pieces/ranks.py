"""Several trainer ranks on this machine, started with the variables that a launcher sets."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks.verdicts.pieces.recording import Recording, sleep_forever

Rank: TypeAlias = Callable[[Recording, int, Any], None]
"""The program of a rank, given its number and a barrier of all ranks."""


def launch(recording: Recording, rank: Rank, *, world: int = 2, waits: bool = True) -> None:
    """Start the ranks, and wait for them; then stay, as a launcher that restarts nothing, if `waits`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(world)
    shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(port), "OTEL_RL_RUN_ID": "verdicts-1"}
    processes = [
        context.Process(target=_run, args=(recording.has_calls, rank, number, barrier, shared))
        for number in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if waits:
        sleep_forever()


def _run(has_calls: bool, rank: Rank, number: int, barrier: Any, shared: dict[str, str]) -> None:
    os.environ.update(shared, RANK=str(number), LOCAL_RANK=str(number))
    rank(Recording(has_calls).begin(), number, barrier)


def gloo() -> Any:
    """Return `torch.distributed` with all ranks in a group whose operations wait for two hours."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=2))
    return dist


def reduce(dist: Any) -> None:
    """Sum a tensor over all ranks."""
    import torch

    dist.all_reduce(torch.ones(4))

"""The ranks of one machine, forked from one process, so that 64 of them fit a small machine.

`python -m benchmarks.simulated_ranks DIRECTORY FIRST COUNT WORLD HEAD STEPS PERIOD`: the ranks record their steps, one
every PERIOD seconds from when the file `go` is next to the directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
import time
from pathlib import Path

import otel_rl
from benchmarks.recording import PHASES

PROJECT = ID = "limits"
VALUES = 100
"""Values that each rank logs in a step."""
_NEW_UTS = 0x04000000
_DEADLINE_S, _FINISH_S = 7200.0, 1500.0


def main() -> None:
    """Fork the ranks, and end when all have; the exit code is 0 if each delivered everything."""
    directory, head = Path(sys.argv[1]), sys.argv[5]
    first, count, world, steps = (int(sys.argv[n]) for n in (2, 3, 4, 6))
    with contextlib.suppress(OSError, AttributeError):  # without privileges, all machines have the name of the host
        if not ctypes.CDLL(None).unshare(_NEW_UTS):
            socket.sethostname(directory.name)
    started = []
    for rank in range(first, first + count):
        if not (child := os.fork()):
            os.environ |= {"LOCAL_RANK": str(rank - first), "LOCAL_WORLD_SIZE": str(count)}
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "GROUP_RANK": str(first // count)}
            os._exit(0 if record(directory, rank, head, steps, float(sys.argv[7])) else 1)
        started.append(child)
    sys.exit(max(os.waitpid(child, 0)[1] for child in started) != 0)


def record(directory: Path, rank: int, head: str, steps: int, period: float) -> bool:
    """Record the steps of one rank; tell whether everything was delivered."""
    parent = os.getppid()
    run = otel_rl.init(
        project=PROJECT, id=ID, dir=directory, head=head, rows={"deadline": _DEADLINE_S}, dialect="verl", quiet=True
    )
    while not (directory.parent / "go").exists():
        _end_with_parent(parent)
    began = time.monotonic()
    for step in range(steps):
        with run.step(step):
            for name in PHASES:
                with run.phase(name):
                    pass
            run.log({f"actor/metric_{n}": (step + n + rank) / 7 for n in range(VALUES)} | {"rank": float(rank)})
        while time.monotonic() < began + (step + 1) * period:
            _end_with_parent(parent)
    return bool(run.finish(_FINISH_S))


def _end_with_parent(parent: int) -> None:
    time.sleep(0.1)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()

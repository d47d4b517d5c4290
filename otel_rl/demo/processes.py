"""The processes of the demo: this one is rank 0 and starts the others, as torchrun would."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.demo.options import Options

LAST_WORDS_S = 40  # the others deliver what they recorded, too


def launch_environment(world_size: int) -> dict[str, str]:
    """What all ranks share: the identity of the run, and where they meet."""
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


def rank_environment(rank: int) -> dict[str, str]:
    """What tells one rank from the others."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Have these variables in the environment of this process, for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def start_others(options: Options, shared: dict[str, str]) -> list[subprocess.Popen[bytes]]:
    """Start the ranks after the first, each in a process of its own."""
    command = [sys.executable, "-m", "otel_rl.demo.worker", options.to_json()]
    return [
        subprocess.Popen(command, env={**os.environ, **shared, **rank_environment(rank)}, stdout=subprocess.DEVNULL)
        for rank in range(1, options.ranks)
    ]


def wait_for(others: list[subprocess.Popen[bytes]]) -> None:
    """Let the other ranks deliver what they recorded."""
    for process in others:
        try:
            process.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""A run under attack, and what strangers do to it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import free_port, wait_for
from tests.processes import rows_of


class Victim:
    """A run with a head agent on loopback, which logs a step from time to time; `settings` are those of `init`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.port = free_port()
        self.run = otel_rl.init(
            dir=directory,
            id="victim",
            head=f"127.0.0.1:{self.port}",
            rows={"deadline": 1},
            hardware=False,
            quiet=True,
            strict=True,
            **settings,
        )
        self._agent = self._pid()
        self._step = 0
        self.pace()

    @property
    def memory(self) -> float:
        """The largest resident memory of the agent, in MiB."""
        lines = Path(f"/proc/{self._agent}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def pace(self) -> None:
        """Log a step, and wait for its row."""
        step, self._step = self._step, self._step + 1
        with self.run.step(step):
            self.run.log({"loss": 1.0})
        with self.run.step(self._step):  # a row leaves when the next step begins
            pass
        self._step += 1
        wait_for(lambda: any(row["step"] == step for row in rows_of(self.run.dir)), f"no row of step {step}", 60)

    def is_unharmed(self) -> bool:
        """Return whether the same agent delivers rows, and the run ends with everything delivered."""
        alive = self._pid() == self._agent
        self.pace()
        return bool(self.run.finish(60)) and alive

    def _pid(self) -> int:
        return agent_start.read_status(directories.at(self.run.dir)).pid


def idle(port: int, number: int, beginning: bytes = b"") -> list[socket.socket]:
    """Return connections that have sent the beginning of a request, and send nothing more."""
    found = []
    for _ in range(number):
        found.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        found[-1].sendall(beginning)
    return found


def at_once(number: int, work: Any) -> list[Any]:
    """Return the results of a function that runs in so many threads; it gets the number of the thread."""
    found: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: found.append(work(n))) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found

"""`network_agent.py EXPORTER SOCKET MODULE…`: agents of one exporter, forked from a process with its modules.

Each connection to the socket gets an agent, which delivers an outbox with short pauses. The agent obeys lines: place
and options first, then `put FIRST LAST` appends rows and parameters, and `end` shuts the exporter down when it has
everything. It writes its process id, and the error of each failure.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from urllib3.util.retry import Retry

from otel_rl.export import Ended, Item, Params, Row, RunInfo
from otel_rl.recorder.delivery import exporter_thread, handover
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.failures import Failures
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.delivery.plugins import find_exporter
from otel_rl_exporters import wandb_api

if TYPE_CHECKING:
    from collections.abc import Sequence


class PrintedFailures(Failures):
    """The failures of an exporter, printed each time."""

    def note(self, text: str) -> None:
        """Print a message."""
        super().note(text)
        print(text.replace("\n", " "), flush=True)  # noqa: T201


def items(first: int, last: int) -> list[Item]:
    """Return rows, and parameters with them."""
    return [Params(first, {f"p{first}": first}), *(Row(n, n * 10**9, {"a": n + 0.5}) for n in range(first, last))]


def deliver(name: str, place: Path, options: dict[str, object]) -> None:
    """Deliver until standard input says to end."""
    for part in ("outbox", "cursors"):
        (place / part).mkdir(parents=True, exist_ok=True)
    outbox = Outbox(place / "outbox", 1 << 30)
    info = RunInfo(place.name, "p", "n", str(place))
    thread = ExporterThread(name, find_exporter(name), options, info, outbox, place / "cursors")
    thread.start()
    for line in sys.stdin:
        command, *numbers = line.split()
        if command == "end":
            outbox.append([Ended(10**12, 0, "finished")], b"\xc0")
            thread.close_when_done()
            thread.join()
            print("ended", flush=True)  # noqa: T201
            return
        outbox.append(items(*map(int, numbers)), b"\xc0")


def main(name: str, path: str, modules: Sequence[str]) -> None:
    """Fork an agent for each connection; return in the agent when it has delivered."""
    exporter_thread._LONGEST_PAUSE_S = 0.5
    exporter_thread.Failures = PrintedFailures  # type: ignore[misc]
    handover.ANEW_AFTER = 2
    wandb_api._ANSWERS_WITHIN_S = 3
    Retry.DEFAULT_BACKOFF_MAX = 0.1
    for module in modules:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for agents
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connection = _accept(listener)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in range(3):
        os.dup2(connection.fileno(), descriptor)
    place, options = json.loads(sys.stdin.readline())
    print(os.getpid(), flush=True)  # noqa: T201
    deliver(name, Path(place), options)


def _accept(listener: socket.socket) -> socket.socket:
    """Fork a process for each connection; return in that process."""
    while True:
        connection, _ = listener.accept()
        if not os.fork():
            return connection
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.argv[3:])

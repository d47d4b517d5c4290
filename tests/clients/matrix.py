"""The clients of all languages against the bridge: what becomes of the rows that they send."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.clients.lossy import Lossy
from tests.clients.programs import Client, Program
from tests.collector import wait_for
from tests.processes import rows_of
from tests.serve.bridge.bridges import Bridge

AWAY_S = 3


class Case(NamedTuple):
    """The accident that happens to the clients."""

    name: str  # a column of the table
    rows: int = 600  # how many rows each sends
    batch: int = 100  # how many in a request
    lost: int = 0  # if not 0, the first answer and each further one of this number is lost
    away: bool = False  # if true, the receiver is killed when half of the rows are there, and starts again


CASES = (
    Case("healthy"),
    Case("10,000 in one request", rows=10_000, batch=10_000),
    Case("answers lost", lost=4),
    Case(f"receiver away for {AWAY_S} s", away=True),
)


class Result(NamedTuple):
    """The fate of the rows that a client sent."""

    sent: int  # how many it sent
    received: int  # how many steps have a row
    doubled: int  # how many rows are of a step that has one already
    is_exact: bool  # if true, each row holds what was sent for its step, bit by bit
    is_in_order: bool  # if true, the rows came as they were sent
    given_up: int  # how many the client's exporter gave up, or does not know whether they were received
    said: str  # what the client wrote to its log


class _Sender:
    """A client that runs."""

    def __init__(self, program: Program, directory: Path, bridge: Bridge, case: Case, way: tuple[str, str]) -> None:
        protocol, compression = way
        port = bridge.grpc if protocol == "grpc" else bridge.http
        self._link = Lossy(port, case.lost) if case.lost else None
        self.run = f"{protocol.replace('/', '-')}-{compression}"
        self._case = case
        self._delivered = 0
        self._directory = bridge.directory / "p" / self.run
        self._log = directory / f"{self.run}.log"
        endpoint = f"http://127.0.0.1:{self._link.port if self._link else port}"
        arguments = [endpoint, protocol, compression, self.run, str(case.rows), str(case.batch)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*program.command, *arguments],
                cwd=program.place,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def reach_half(self) -> None:
        """Wait until half of the rows are sent."""
        line = self._line()
        assert line == "half", f"{self.run}: {line}: {self._log.read_text(errors='replace')}"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        """Let it send the other half."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until it delivered what it does not give up."""
        last = self._line()
        assert last.isdecimal(), f"{self.run}: {last}: {self._log.read_text(errors='replace')}"
        self._delivered = int(last)
        wait_for(lambda: self._lines() >= self._delivered, f"{self.run}: rows are missing", 60)

    def _lines(self) -> int:
        file = self._directory / "rows.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def result(self) -> Result:
        """Return what became of its rows, when the bridge has ended."""
        rows: list[dict[str, Any]] = rows_of(self._directory)
        sent, steps = self._case.rows, [row["step"] for row in rows]
        received = len(set(steps))
        right = all(row["values"] == {"loss": 1 / (row["step"] + 3), "tokens": row["step"]} for row in rows)
        in_order = steps == sorted(steps)
        said = self._log.read_text(errors="replace")
        return Result(sent, received, len(steps) - received, right, in_order, sent - self._delivered, said)

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._link is not None:
            self._link.close()


def measure(client: Client, case: Case, directory: Path, program: Program) -> dict[tuple[str, str], Result]:
    """Let a client send over each of its protocols, with and without compression.

    Args:
        client: The client.
        case: What happens to it.
        directory: Where files are.
        program: The built client.
    """
    directory.mkdir(parents=True, exist_ok=True)
    bridge = Bridge(directory / "bridged")
    ways = client.ways
    senders: list[_Sender] = []
    try:
        for way in ways:
            senders.append(_Sender(program, directory, bridge, case, way))
            if case.batch == case.rows:  # one after the other: together they might take longer than a client waits
                senders[-1].wait()
        if case.batch < case.rows:
            _send_halves(senders, bridge, case)
        bridge.stop()
        return {way: sender.result() for way, sender in zip(ways, senders, strict=True)}
    finally:
        for sender in senders:
            sender.stop()
        bridge.kill()


def _send_halves(senders: Sequence[_Sender], bridge: Bridge, case: Case) -> None:
    for sender in senders:
        sender.reach_half()
    if case.away:
        bridge.kill()
    for sender in senders:
        sender.go_on()
    if case.away:
        time.sleep(AWAY_S)
        bridge.restart()
    for sender in senders:
        sender.wait()

"""A run under attack: its agent, what the agent uses, and how late its own rows are meanwhile."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import otel_rl
from otel_rl.export import NotNow
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from tests.collector import free_port, wait_for
from tests.processes import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
PROTOBUF, JSON = "application/x-protobuf", "application/json"


class Used(NamedTuple):
    """The resources that an agent used during an attack.

    Attributes:
        memory: How much its largest resident memory grew, in MiB.
        descriptors: The largest number of descriptors.
        disk: How much the run directory grew, in MiB.
        late: The largest delay of an own row, in seconds; without an attack it is about 0.1 s.
    """

    memory: float
    descriptors: int
    disk: float
    late: float


class Process:
    """A process that is watched from outside."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptors = 0

    @property
    def peak(self) -> float:
        """Its largest resident memory, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def look(self) -> int:
        """Count its descriptors; return the largest number so far."""
        with contextlib.suppress(OSError):
            self.descriptors = max(self.descriptors, len(list(Path(f"/proc/{self.pid}/fd").iterdir())))
        return self.descriptors


class Stuck:
    """An exporter whose backend never answers, so that the outbox keeps everything."""

    def __init__(self, run: object) -> None:
        pass

    def export(self, items: object) -> None:
        """Do not deliver anything."""
        raise NotNow("the backend is down")

    def shutdown(self) -> None:
        """Do nothing."""


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
        self.agent = Process(agent_start.read_status(directories.at(self.run.dir)).pid)
        self._step = 0
        self.pace()
        self._before = (self.agent.peak, _size(self.run.dir))

    def pace(self) -> float:
        """Log a step; return the seconds until its row is delivered."""
        step, self._step = self._step, self._step + 1
        begun = time.monotonic()
        with self.run.step(step):
            self.run.log({"loss": 1.0})
        with self.run.step(self._step):  # a row leaves when the next step begins
            pass
        self._step += 1
        wait_for(lambda: any(row["step"] == step for row in rows_of(self.run.dir)), f"no row of step {step}", 60)
        self.agent.look()
        return time.monotonic() - begun

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[Used]]:
        """Log steps while a block runs; the list has one entry after it."""
        late: list[float] = []
        ended = threading.Event()

        def log() -> None:
            while not ended.is_set():
                late.append(self.pace())

        logging = threading.Thread(target=log)
        logging.start()
        found: list[Used] = []
        try:
            yield found
        finally:
            ended.set()
            logging.join()
            memory, disk = self._before
            found.append(
                Used(
                    self.agent.peak - memory, self.agent.descriptors, _size(self.run.dir) / MIB - disk / MIB, max(late)
                )
            )

    def is_unharmed(self) -> bool:
        """Return whether the same agent delivers rows, and the run ends with everything delivered."""
        alive = agent_start.read_status(directories.at(self.run.dir)).pid == self.agent.pid
        self.pace()
        return self.run.finish(60) and alive


def _size(directory: Path) -> float:
    found = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            found += path.stat().st_blocks * 512 if path.is_file() else 0
    return found


def ask(port: int, body: bytes, path: str = "/v1/logs", kind: str = PROTOBUF, **headers: str) -> tuple[int, str, bytes]:
    """Send a request; return the status, `Retry-After` and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    given = {"Content-Type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", path, body, given)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Retry-After", ""), answer.read()
    finally:
        connection.close()


def idle(port: int, number: int, beginning: bytes = b"") -> list[socket.socket]:
    """Return connections that have sent the beginning of a request, and send nothing more."""
    found = []
    for _ in range(number):
        found.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        found[-1].sendall(beginning)
    return found


def gzipped(pattern: bytes, size: int) -> bytes:
    """Return so many bytes of a repeated pattern, compressed."""
    return gzip.compress(pattern * (size // len(pattern)), 9)


def at_once(number: int, work: Any) -> list[Any]:
    """Return the results of a function that runs in so many threads; it gets the number of the thread."""
    found: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: found.append(work(n))) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found

"""rotel, a real OTLP collector, and what it says that it received."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_NOT_FINITE = {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf}


class ReceivedSpan(NamedTuple):
    """A span as the collector prints it."""

    trace_id: str
    parent_id: str
    span_id: str
    name: str
    status: str
    message: str


class Collector:
    """A running collector, which passes nothing on; its text log, in a directory, is the only way to look into it."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "rotel.log"
        self.grpc, self.http = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until both of its ports answer."""
        spec = find_spec("rotel")
        assert spec is not None
        assert spec.origin is not None
        program = Path(spec.origin).with_name("rotel-agent")
        signals = [part for name in ("traces", "metrics", "logs") for part in ("--debug-log", name)]
        ports = ["--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc}", "--otlp-http-endpoint", f"127.0.0.1:{self.http}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, "start", "--exporter", "blackhole", *signals, "--debug-log-verbosity", "detailed", *ports],
                stdout=log,
                stderr=log,
            )
        for port in (self.grpc, self.http):
            wait_for(lambda port=port: answers(port), f"the collector does not listen on {port}")  # type: ignore[misc]

    def stop(self) -> None:
        """End it; what it received is in its log."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def environment(self, protocol: str) -> dict[str, str]:
        """Return the OTel variables that point at it."""
        port = self.grpc if protocol == "grpc" else self.http
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }

    def text(self) -> str:
        """Return the whole log."""
        return self.log.read_text(errors="replace")

    def spans(self) -> list[ReceivedSpan]:
        """Return the spans that it received, in order."""
        pattern = re.compile(
            r"Span #\d+\n\s+Trace ID\s+: (\w*)\n\s+Parent ID\s+: (\w*)\n\s+ID\s+: (\w*)\n\s+Name\s+: (.*)\n"
            r"(?:.*\n){3}\s+Status code\s+: (\w+)\n\s+Status message : (.*)\n"
        )
        return [ReceivedSpan(*found) for found in pattern.findall(self.text())]

    def steps(self) -> list[tuple[int, dict[str, float]]]:
        """Return the step and the values of each `rl.step.metrics` event, in order."""
        pattern = re.compile(
            r"EventName: rl\.step\.metrics\n(?:.*\n)*?\s+-> rl\.loop\.iteration: Int\((\d+)\)\n"
            r"\s+-> rl\.step\.values: Map\((.*)\)\n"
        )
        return [(int(step), _values(text)) for step, text in pattern.findall(self.text())]

    def metric_names(self) -> set[str]:
        """Return the names of the metrics that it received."""
        return set(re.findall(r"-> Name: (\S+)\n", self.text()))


def _values(text: str) -> dict[str, float]:
    pairs = re.findall(r"([^,( ][^:]*):(?:Double|Int)\(([^)]*)\)", text)
    return {name: _NOT_FINITE[value] if value in _NOT_FINITE else float(value) for name, value in pairs}


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Collector]:
    """Start a collector, and stop it afterwards."""
    collector = Collector(directory)
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()


def free_port() -> int:
    """Return a port of the loopback that is free now; whoever asks the kernel for any port next may get it too."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: object, otherwise: str, timeout: float = 20.0) -> None:
    """Wait until the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def answers(port: int) -> bool:
    """Tell whether something listens on a port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

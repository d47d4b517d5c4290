"""Servers that run: the stack, a Collector that can be killed, and a receiver of alerts."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.serve.servers import PORTS, is_prometheus_3
from tests.collector import answers, free_port, wait_for
from tests.real_parts import given

DEPLOY = Path(__file__).parents[2] / "deploy"
_PROMETHEUS = shutil.which("prometheus")
HAS_PROMETHEUS_3 = _PROMETHEUS is not None and is_prometheus_3(_PROMETHEUS)
needs_prometheus_3 = given("Prometheus 3", present=HAS_PROMETHEUS_3)
A_WHILE = 180.0
"""Seconds that a busy machine may need for one thing."""


def told(*arguments: str) -> tuple[int, str]:
    """Run `otel-rl stack`; return its exit code and what it printed."""
    result = CliRunner().invoke(main, ["stack", *arguments])
    return result.exit_code, result.output


@contextlib.contextmanager
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the stack on free ports for the runs of this directory; yield what `up` printed."""
    for name in PORTS:
        monkeypatch.setitem(PORTS, name, free_port())
    code, output = told("up", "--local")
    try:
        assert code == 0, output
        yield output
    finally:
        told("down")


def get(server: str, path: str) -> Any:
    """Return what a server of the stack answers, `None` if it does not know it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[server]}{path}") as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def trace(trace_id: str) -> list[str]:
    """Return the names of the spans of a trace that Jaeger has, none if it does not have it."""
    found = get("jaeger", f"/api/traces/{trace_id}")
    return [span["operationName"] for one in (found or {}).get("data") or [] for span in one["spans"]]


def steps_of(run: str) -> list[str]:
    """Return the ids of the traces of steps that Jaeger has: the search to which the panels of steps link."""
    asked = {"service": "otel-rl-demo", "operation": "rl.loop", "tags": json.dumps({"rl.run.id": run})}
    found = get("jaeger", f"/api/traces?{urllib.parse.urlencode(asked)}")
    return [one["traceID"] for one in (found or {}).get("data") or []]


def send_alerts_to(url: str) -> None:
    """Give the running Alertmanager a receiver, as its file says."""
    path = Path("runs/.stack/alertmanager.yml")
    text = path.read_text()
    assert "  - name: nobody" in text
    path.write_text(text.replace("  - name: nobody", f"  - name: nobody\n    webhook_configs: [{{url: '{url}'}}]"))
    reload = urllib.request.Request(f"http://127.0.0.1:{PORTS['alertmanager']}/-/reload", method="POST")
    with urllib.request.urlopen(reload):
        pass


class Collector:
    """An OpenTelemetry Collector with a file of deploy/collector; its queue outlives it.

    Args:
        name: The file.
        directory: Where its queue and its log are.
        settings: More settings, and other values, by their paths in the file.
        port: Where it takes OTLP over HTTP, or over gRPC if the file has no other; by default a free port.
        environment: The variables that the file wants.
    """

    def __init__(
        self, name: str, directory: Path, settings: dict[str, str] | None = None, port: int = 0, **environment: str
    ) -> None:
        self.port = port or free_port()
        self._own = free_port()
        protocol = "grpc" if name == "tail-sampling" else "http"
        page = f"{{host: 127.0.0.1, port: {self._own}}}"
        overridden = {
            f"receivers.otlp.protocols.{protocol}.endpoint": f"127.0.0.1:{self.port}",
            "service.telemetry.metrics.readers": f"[{{pull: {{exporter: {{prometheus: {page}}}}}}}]",
            **(settings or {}),
        }
        self._command = ["otelcol", "--config", str(DEPLOY / "collector" / f"{name}.yaml")]
        self._command += [f"--set={path}={value}" for path, value in overridden.items()]
        self._environment = {"QUEUE": str(directory / "queue"), **environment}
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = shutil.which(self._command[0])
        assert program is not None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, *self._command[1:]], env=self._environment, stdout=log, stderr=log
            )
        process = self._process
        wait_for(lambda: answers(self.port) or process.poll() is not None, "the Collector does not listen", A_WHILE)
        assert process.poll() is None, self._log.read_text()[-4000:]

    @property
    def pid(self) -> int:
        """Its process, 0 if it does not run."""
        return self._process.pid if self._process else 0

    def metrics(self) -> dict[str, float]:
        """Return its own metrics, summed over labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._own}/metrics") as answer:
            found = re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", answer.read().decode(), re.MULTILINE)
        return {name: sum(float(value) for one, value in found if one == name) for name, _ in found}

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self._end(by_force=True)

    def stop(self) -> None:
        """End it as a service manager does."""
        self._end(by_force=False)

    def _end(self, *, by_force: bool) -> None:
        if self._process is not None:
            self._process.kill() if by_force else self._process.terminate()
            self._process.wait(A_WHILE)
            self._process = None

    def __enter__(self) -> Collector:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Webhook:
    """A receiver of alerts.

    Attributes:
        messages: What it received, decoded.
        url: Its address.
    """

    def __init__(self) -> None:
        messages: list[Any] = []

        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.messages = messages
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def alerts(self) -> list[dict[str, str]]:
        """Return the labels of all alerts that fire, in order."""
        return [alert["labels"] for message in self.messages for alert in message["alerts"]]

    def __enter__(self) -> Webhook:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

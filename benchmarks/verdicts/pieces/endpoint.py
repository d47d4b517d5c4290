"""An inference server in a process of its own, with metrics as those of vLLM, and controls that break it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import otel_rl


class Engine:
    """Generates tokens, unless it is paused, wedged or broken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state = "ready"
        self._running = self._waiting = self._tokens = self._preemptions = 0
        self._shown: dict[str, float] = {}

    def generate(self) -> tuple[int, str]:
        """Answer after a short time; not while it is paused or wedged."""
        if self._state == "broken":
            return 500, "EngineDeadError: the engine core has failed"
        with self._changed:
            self._running += 1
            self.wait_until_resumed()
        while self._state == "wedged":
            time.sleep(0.5)
        time.sleep(0.02)
        with self._changed:
            self._running -= 1
            self._tokens += 50
            self._changed.notify_all()
        return 200, "the answer"

    def wait_until_resumed(self) -> None:
        """Hold a request while the engine is paused."""
        while self._state == "paused":
            self._changed.wait()

    def process_weights(self) -> tuple[int, str]:
        """Wait for the requests that it works on, then take new weights."""
        with self._changed:
            while self._running:
                self._changed.wait()
        return 200, "done"

    def set(self, path: str) -> tuple[int, str]:
        """Change its state to the last part of the path, or what its metrics show: `/show/running/27`."""
        _, _, *words = path.split("/")
        with self._changed:
            if len(words) > 1:
                self._shown[words[0]] = float(words[1])
            else:
                self._state = words[0]
            self._changed.notify_all()
        return 200, "set"

    def metrics(self) -> str:
        """Return its load as Prometheus text."""
        shown = {
            "num_requests_running": self._shown.get("running", self._running),
            "num_requests_waiting": self._shown.get("waiting", self._waiting),
            "kv_cache_usage_perc": self._shown.get("cache", 0.3),
            "num_preemptions_total": self._shown.get("preemptions", self._preemptions),
            "generation_tokens_total": self._shown.get("tokens", self._tokens),
        }
        kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in shown}
        return "".join(
            f'# TYPE vllm:{name} {kinds[name]}\nvllm:{name}{{model_name="m"}} {value}\n'
            for name, value in shown.items()
        )


def serve(port: int) -> None:
    """Serve an engine until the process is ended."""
    engine = Engine()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            """Stay quiet."""

        def do_GET(self) -> None:
            self._answer(200, engine.metrics())

        def do_POST(self) -> None:
            if self.path == "/generate":
                self._answer(*engine.generate())
            elif self.path == "/update_weights":
                self._answer(*engine.process_weights())
            else:
                self._answer(*engine.set(self.path))

        def _answer(self, status: int, body: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def start() -> int:
    """Start an engine, and return its port."""
    port, _ = start_process()
    return port


def start_process() -> tuple[int, int]:
    """Start an engine, and return its port and its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.verdicts.pieces.endpoint", str(port)])
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return port, process.pid
    raise TimeoutError(f"the engine at port {port} does not start")


def ask(port: int, path: str = "/generate") -> str:
    """Send a request without a time limit, with the trace context as the docs say."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"{}", headers=dict(otel_rl.carrier()))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request) as answer:
        return str(answer.read().decode())


def asked(trajectory: Any, port: int) -> str:
    """Ask for a completion, as the part of a trajectory that names its server."""
    with trajectory.part("model", name="policy", **{"server.address": "127.0.0.1", "server.port": port}):
        return ask(port)


def metrics_url(port: int) -> str:
    """Return the address of its metrics."""
    return f"http://127.0.0.1:{port}/metrics"


if __name__ == "__main__":
    serve(int(sys.argv[1]))

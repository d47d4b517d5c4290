"""Exporters that are dead, that swallow everything, or that are slow."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.agent.process import run_agent
from tests import collector as collectors
from tests.collector import free_port
from tests.processes import rows_of, run_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield server.getsockname()[1]


@contextlib.contextmanager
def dead() -> Iterator[int]:
    """A port where nobody listens."""
    yield free_port()


@contextlib.contextmanager
def slow() -> Iterator[int]:
    """A port that answers with an error after two seconds."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                time.sleep(2)
                connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("place", [dead, black_hole, slow])
def test_finish_returns_in_time_and_says_that_not_all_is_delivered(
    place: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`finish(timeout=5)` says False within 6 s; the exporters that work have everything."""
    with place() as port:  # type: ignore[operator]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_RL_IDLE_TIMEOUT", "1")
        run = otel_rl.init(dir=tmp_path, quiet=True)
        for n in range(50):
            with run.step(n), run.phase("generate"):
                run.log({"loss": float(n)})
        started = time.monotonic()
        delivered = run.finish(timeout=5)
        took = time.monotonic() - started

    assert delivered is False
    assert took < 6
    assert [row["step"] for row in rows_of(run.dir)] == list(range(50))


@needs("rotel")
def test_the_next_agent_delivers_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead collector gets everything that it missed from the next agent once it lives: all of it, once."""
    collector = collectors.Collector(tmp_path)
    for name, value in collector.environment("http/protobuf").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_RL_IDLE_TIMEOUT", "0.5")
    run = otel_rl.init(dir=tmp_path, quiet=True)
    for n in range(20):
        with run.step(n):
            run.log({"loss": float(n)})
    assert not run.finish(timeout=1)
    collectors.wait_for(lambda: not _alive(run.dir), "the agent does not give up", 30)
    collector.start()
    try:
        assert run_agent(run.dir, once=True)
        collectors.wait_for(lambda: len(collector.steps()) >= 20, "the events did not arrive")

        assert [step for step, _ in collector.steps()] == list(range(20))
        assert len(rows_of(run.dir)) == 20
    finally:
        collector.stop()


def test_a_slow_collector_gets_few_large_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes half a second for each request keeps up: what waits goes together."""
    requests: list[str] = []

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(self.path)
            time.sleep(0.5)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    run = otel_rl.init(dir=tmp_path, exporters=[], quiet=True)
    for n in range(200):
        with run.step(n):
            run.log({"loss": float(n)})
        time.sleep(0.01)
    delivered = run.finish(20)
    server.shutdown()

    assert delivered
    assert requests.count("/v1/logs") < 15


def test_an_exporter_that_hangs_delays_no_other(tmp_path: Path) -> None:
    """One exporter that never returns: the others have everything, and the agent still ends."""
    (tmp_path / "stuck.py").write_text(
        "import time\n"
        "class Stuck:\n"
        "    def __init__(self, run): pass\n"
        "    def export(self, items): time.sleep(1000)\n"
        "    def shutdown(self): pass\n"
    )
    script = """
import otel_rl, stuck, time
run = otel_rl.init(dir="runs", project="p", id="i", exporters=[stuck.Stuck, "jsonl"], quiet=True)
for n in range(10):
    run.log({"loss": 1.0}, step=n)
started = time.monotonic()
assert run.finish(1) is False
assert time.monotonic() - started < 2
"""
    run_python(script, tmp_path, OTEL_RL_IDLE_TIMEOUT="0.5")
    run_dir = tmp_path / "runs" / "p" / "i"
    collectors.wait_for(lambda: not _alive(run_dir), "the agent does not end", 60)

    assert [row["step"] for row in rows_of(run_dir)] == list(range(10))


def test_an_exporter_that_fails_gets_the_same_items_again(tmp_path: Path) -> None:
    """An exporter, here one next to the trainer's script, that fails twice and then works has everything once."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "flaky.py").write_text(
        "import json, pathlib\n"
        "class Flaky:\n"
        "    def __init__(self, run): self.path, self.left = pathlib.Path(run.directory, 'flaky.txt'), 2\n"
        "    def export(self, items):\n"
        "        if self.left:\n"
        "            self.left -= 1\n"
        "            raise ConnectionError('not now')\n"
        "        with self.path.open('a') as file:\n"
        "            file.writelines(f'{item.step}\\n' for item in items if hasattr(item, 'values'))\n"
        "    def shutdown(self): pass\n"
    )
    script = """
import sys; sys.path.insert(0, "scripts")
import otel_rl, flaky
run = otel_rl.init(dir="runs", project="p", id="i", exporters=[flaky.Flaky], hardware=False, quiet=True)
for n in range(10):
    run.log({"loss": 1.0}, step=n)
assert run.finish(20)
"""
    run_python(script, tmp_path)
    run_dir = tmp_path / "runs" / "p" / "i"

    assert [int(line) for line in (run_dir / "flaky.txt").read_text().split()] == list(range(10))
    from otel_rl.setup import directory as directories
    from otel_rl.setup.agent_start import read_status

    assert read_status(directories.at(run_dir)).failures == {"flaky:Flaky": 2}


def _alive(run_dir: Path) -> bool:
    from otel_rl.setup import directory as directories
    from otel_rl.setup.agent_start import agent_is_alive

    return agent_is_alive(directories.at(run_dir))

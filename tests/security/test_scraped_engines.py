"""The token by which Prometheus scrapes agents goes to those that ask for it."""

from __future__ import annotations

import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.output.targets import Target
from otel_rl.serve.servers import configurations
from tests.collector import wait_for
from tests.prometheus import running
from tests.real_parts import needs_program

DEPLOY = Path(otel_rl.__file__).parents[1] / "deploy"


@pytest.mark.slow
@needs_program("prometheus")
def test_who_gets_the_token(tmp_path: Path) -> None:
    """Prometheus, as the stack configures it, sends it to an agent that asks, not to another one and to no engine."""
    heard: dict[str, str | None] = {}

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard[self.path] = self.headers["Authorization"]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    targets = [
        Target(tmp_path / "targets" / f"{name}.json", name, f"{url}/{name}", [f"{url}/engine"], **asks, sweeps=False)
        for name, asks in (("asks", {"needs_token": True}), ("open", {}))
    ]
    config = configurations(DEPLOY, {"prometheus": shutil.which("prometheus") or ""})["prometheus.yml"]
    (tmp_path / "prometheus.yml").write_text(config.replace("15s", "1s"))
    (tmp_path / "scrape-token").write_text("secret")
    shutil.copy(DEPLOY / "prometheus" / "alertmanagers.json", tmp_path)
    for target in targets:
        target.start()
    try:
        with running(tmp_path):
            wait_for(lambda: len(heard) == 3, "not all are scraped", 60)
    finally:
        for target in targets:
            target.close()
        server.shutdown()

    assert heard == {"/asks": "Bearer secret", "/open": None, "/engine": None}

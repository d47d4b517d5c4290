"""An inference server is a stranger to the token by which Prometheus scrapes agents."""

from __future__ import annotations

import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import otel_rl
from otel_rl.agent.output.targets import Target
from otel_rl.cli.servers import configurations
from tests.collector import wait_for
from tests.prometheus import running
from tests.real_parts import needs_program

DEPLOY = Path(otel_rl.__file__).parents[1] / "deploy"


@pytest.mark.slow
@needs_program("prometheus")
def test_an_engine_gets_no_token(tmp_path: Path) -> None:
    """Prometheus, with the configuration of the stack, sends the token to the agent and not to the engine."""
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
    target = Target(tmp_path / "targets" / "a.json", "r", f"{url}/agent", [f"{url}/engine"], sweeps=False)
    config = configurations(DEPLOY, {"prometheus": shutil.which("prometheus") or ""})["prometheus.yml"]
    config = config.replace("# authorization:", "authorization:").replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(config)
    (tmp_path / "token").write_text("secret")
    shutil.copy(DEPLOY / "prometheus" / "alertmanagers.json", tmp_path)
    target.start()
    try:
        with running(tmp_path):
            wait_for(lambda: len(heard) == 2, "not both are scraped", 60)
    finally:
        target.close()
        server.shutdown()

    assert heard == {"/agent": "Bearer secret", "/engine": None}

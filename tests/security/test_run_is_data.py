"""A run directory is data: what its manifest names is neither imported, nor called, nor asked, nor a path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

import otel_rl
from otel_rl.autopsy import collect
from otel_rl.cli.late.replay import replay
from otel_rl.recorder.directory.directory import Manifest
from otel_rl.recorder.directory.secret_options import HIDDEN_QUERY, with_secrets, without_secrets

_KEY = "kQ8wE5rT1yU7iO3p"


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """Return the address of a server, and the paths that it was asked for."""
    paths: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics", paths
    server.shutdown()


def change(run: Path, **changes: Any) -> None:
    """Change the manifest of a run; `agent` has the settings that are changed."""
    manifest = json.loads((run / "run.json").read_text())
    manifest["agent"] |= changes.pop("agent", {})
    (run / "run.json").write_text(json.dumps(manifest | changes))


def test_a_function_of_a_manifest(copied: Path, tmp_path: Path) -> None:
    """A replay does not import it, and says so."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nd = None\n")
    change(copied, agent={"rows": {"metrics": "evil:d"}, "redact": {"function": "evil:d"}}, readers=[["evil:d", {}]])
    command = [sys.executable, "-m", "otel_rl.cli", "export", str(copied), "--to", "jsonl", "-o", str(tmp_path / "o")]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )

    assert not (tmp_path / "imported").exists()
    assert "rows.metrics='evil:d' of run.json is not called" in done.stderr


def test_who_may_read_a_copy(copied: Path, tmp_path: Path) -> None:
    """The manifest does not say who may read what a replay writes."""
    change(copied, agent={"share": "all"})
    replay(copied, {"jsonl": {}}, print, into=tmp_path / "o")

    (rows,) = (tmp_path / "o").rglob("rows.jsonl")
    assert rows.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["../../../out", "/abs/olute", "..", "a/b"])
def test_an_id_of_a_manifest(copied: Path, tmp_path: Path, name: str) -> None:
    """It is a text: what a replay writes is where its user wants it."""
    change(copied, id=name, project=name, name=name)
    replay(copied, {"jsonl": {}}, print, into=tmp_path / "into" / "deep")

    assert [path.parents[2] for path in tmp_path.rglob("rows.jsonl")] == [tmp_path / "into" / "deep"]


def test_an_autopsy_asks_no_address_of_a_copy(copied: Path, asked: tuple[str, list[str]]) -> None:
    """No process of this user records the run, so its manifest may be somebody else's; the report says so."""
    change(copied, agent={"hardware": {"engines": [asked[0]]}})
    seen = collect.look(copied)

    assert asked[1] == []
    assert any("they are not asked, since no process of yours records" in text for text in seen.missing)


def test_an_autopsy_asks_the_servers_of_a_run_that_goes_on(tmp_path: Path, asked: tuple[str, list[str]]) -> None:
    """A process of this user has written its manifest."""
    hardware = {"enabled": False, "engines": [asked[0]]}
    run = otel_rl.init(dir=tmp_path, exporters=[], quiet=True, agent="off", hardware=hardware)
    seen = collect.look(run.dir)
    run.finish(0)

    assert [endpoint.url for endpoint in seen.endpoints] == [asked[0]]
    assert asked[1]


def _manifest(*engines: str) -> Manifest:
    fields = {"id": "r", "project": "p", "name": "n", "exporters": [], "readers": [], "resource": {}, "dialect": "auto"}
    fields |= {"agent": {"hardware": {"engines": engines}}, "idle_timeout": 1, "journal_limit": 1}
    return msgspec.convert(fields, Manifest)


@pytest.mark.parametrize("end", [f"?api_key={_KEY}", f"?a=1&x={_KEY}", f"#{_KEY}"])
def test_a_key_in_the_address_of_a_server(end: str) -> None:
    """It is only in the environment of the agent, which asks the whole address."""
    url = f"http://node:8000/metrics{end}"
    public, secrets = without_secrets(_manifest(url))

    assert _KEY not in msgspec.json.encode(public).decode()
    restored = with_secrets(public, {"OTEL_RL_SECRET_OPTIONS": json.dumps(secrets)}, dict)
    assert restored.agent.hardware.engines == (url,)


def test_an_agent_without_the_key() -> None:
    """An agent that is started by hand does not ask that server; it asks the others."""
    manifest = _manifest(f"http://other:1/metrics{HIDDEN_QUERY}", "http://node:8000/metrics")

    assert with_secrets(manifest, {}, dict).agent.hardware.engines == ("http://node:8000/metrics",)


def test_an_address_without_a_key() -> None:
    """It is in the manifest as it is."""
    url = "http://node:8000/metrics"

    assert without_secrets(_manifest(url))[0].agent.hardware.engines == (url,)

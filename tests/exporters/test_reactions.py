"""Reactions to events outside of the run: a command, and a webhook."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.export import Event, Refused, Row, RunInfo
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.agent_start import read_status
from otel_rl.recorder.errors import SettingsError
from otel_rl_exporters.reactions import CommandExporter, WebhookExporter

RUN = RunInfo("i", "p", "n", "/runs/p/n")
SAVE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"


def event(name: str = "rl.training.anomaly", age_s: float = 0.0, **attributes: str) -> Event:
    return Event(name, time.time_ns() - round(age_s * 1e9), {**attributes}, 7)


@contextmanager
def webhook(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the address of a server that answers with a status, and what it was sent."""
    found: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", found
    finally:
        server.shutdown()
        server.server_close()


def test_a_command_gets_the_event(tmp_path: Path) -> None:
    """As JSON on standard input, with the run, and without secrets; no shell reads its arguments."""
    place = tmp_path / "$(touch x); said"
    command = CommandExporter(RUN, argv=[sys.executable, "-c", SAVE, str(place)])
    command.export([Row(0, 0, {"loss": 1.0}), event(text="api_key=sk-ant-api03-0123456789abcdef0123456789abcdef")])
    said = json.loads(place.read_text())

    assert (said["run"], said["name"], said["step"]) == ("i", "rl.training.anomaly", 7)
    assert "0123456789abcdef" not in place.read_text()


def test_events_that_nobody_is_told_of(tmp_path: Path) -> None:
    """Those of the trainer, those with other names than asked for, and those that are older than 10 minutes."""
    place = tmp_path / "said"
    command = CommandExporter(RUN, argv=[sys.executable, "-c", SAVE, str(place)], events=["rl.t*"])
    command.export([event("checkpoint"), event("rl.straggler"), event(age_s=700)])

    assert not place.exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no\\x1b[31m such channel')", "ended with 1: no.*such channel"),
        ("import time; time.sleep(60)", "did not end within 0.5 s"),
    ],
)
def test_a_command_that_fails(code: str, message: str) -> None:
    """It is refused, which is counted, and not tried again."""
    command = CommandExporter(RUN, argv=[sys.executable, "-c", code], timeout=0.5)

    with pytest.raises(Refused, match=message) as raised:
        command.export([event()])
    assert "\x1b" not in str(raised.value)


def test_a_webhook_gets_the_event() -> None:
    """As JSON in a POST request; an error, a redirect and a server that is gone are refused, without the URL."""
    with webhook() as (url, found):
        WebhookExporter(RUN, url=url).export([event(), event("rl.straggler")])
    assert [one["name"] for one in found] == ["rl.training.anomaly", "rl.straggler"]

    with pytest.raises(Refused, match="the webhook failed: ConnectionRefusedError") as gone:
        WebhookExporter(RUN, url=url).export([event()])
    assert "/hook" not in str(gone.value)
    for status in (302, 404, 500):
        with webhook(status) as (url, found), pytest.raises(Refused, match=f"answered {status}"):
            WebhookExporter(RUN, url=url).export([event()])
        assert len(found) == 1


@pytest.mark.slow
def test_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`OTEL_RL_ON_EVENT` is a command or a URL; the URL is in no file of the run."""
    place = tmp_path / "said"
    monkeypatch.setenv("OTEL_RL_ON_EVENT", f"{sys.executable} -c '{SAVE}' {place}")
    run = otel_rl.init(dir=tmp_path, hardware=False, quiet=True)
    ill(run)
    assert json.loads(place.read_text())["attributes"]["rl.anomaly.kind"] == "constant"

    with webhook() as (url, found):
        monkeypatch.setenv("OTEL_RL_ON_EVENT", url)
        run = otel_rl.init(dir=tmp_path, hardware=False, quiet=True)
        ill(run)
    assert [one["attributes"]["rl.metric.name"] for one in found] == ["reward"]
    assert read_status(directories.at(run.dir)).failures == {}
    assert [one for one in run.dir.rglob("*") if one.is_file() and url.encode() in one.read_bytes()] == []


def ill(run: otel_rl.Run, *, delivers: bool = True) -> None:
    """Train for 25 steps with the same reward."""
    for step in range(25):
        with run.step(step):
            run.log({"reward": 0.0})
    assert bool(run.finish(60)) is delivers


@pytest.mark.parametrize("name", ["command", "otel_rl_exporters.reactions:CommandExporter"])
def test_a_program_in_a_file(tmp_path: Path, name: str) -> None:
    """A run directory cannot choose one: an agent that is started by hand leaves it out, and delivers the rest."""
    run = otel_rl.init(dir=tmp_path, hardware=False, quiet=True, agent="off", exporters=["jsonl"])
    ill(run, delivers=False)
    place = tmp_path / "said"
    manifest = json.loads((run.dir / "run.json").read_text())
    manifest["exporters"].append([name, {"argv": [sys.executable, "-c", SAVE, str(place)]}])
    (run.dir / "run.json").write_text(json.dumps(manifest))

    assert run_agent(run.dir, once=True)
    assert len((run.dir / "rows.jsonl").read_text().splitlines()) == 25
    assert not place.exists()


def test_a_setting_that_is_wrong(tmp_path: Path) -> None:
    """The message says what is wrong, before anything is recorded."""
    for wrong, message in (("no-such-program-7 -x", "there is no program 'no-such-program-7'"), ("a 'b", "quotation")):
        with pytest.raises(SettingsError, match=message):
            otel_rl.init(dir=tmp_path, on_event=wrong)

"""The one HTTP client: it sends what it is given to whom it is given, and reads no more than it should."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import otel_rl
from otel_rl.autopsy.doctor import network
from otel_rl.recorder.agent.input import engine_pages
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.agent_start import read_status
from otel_rl.recorder.otlp import http_client
from tests.collector import free_port

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the address of a server, and the headers of the requests that it has got."""
    heard: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            heard.append(dict(self.headers))
            answer(self)

        do_POST = do_GET  # noqa: N815 - a name of the base class

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}/x", heard
    finally:
        listening.shutdown()
        listening.server_close()


def respond(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Return a function that answers a request."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        with suppress(OSError):  # the client has read enough
            handler.wfile.write(body)

    return answer


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with passwords for every host."""
    (tmp_path / ".netrc").write_text("default login me password netrcpass99\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)


_ASKERS: dict[str, Callable[[str], object]] = {
    "ask": lambda url: http_client.ask(url, within=5),
    "post": lambda url: http_client.ask(url, b"{}", within=5),
    "engine": lambda url: engine_pages.fetch(url, "s", 5),
    "doctor": network.ask,
}


@pytest.mark.usefixtures("netrc")
@pytest.mark.parametrize("asker", _ASKERS)
def test_passwords_of_netrc(asker: str) -> None:
    """They are sent to nobody."""
    with server(respond()) as (url, heard):
        _ASKERS[asker](url)

    assert [headers.get("Authorization") for headers in heard] == [None]


@pytest.mark.parametrize("asker", _ASKERS)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect(asker: str, status: int) -> None:
    """It is not followed: neither the body nor a token reaches another host."""
    # One asker says by an error that it was redirected.
    with server(respond()) as (other, heard), server(respond(status, Location=other)) as (url, _), suppress(OSError):
        _ASKERS[asker](url)

    assert heard == []


def test_a_large_body() -> None:
    """Its beginning is read."""
    with server(respond(body=b"x" * 10_000_000)) as (url, _):
        assert len(http_client.ask(url, within=10, most=1000).body) == 1000


def test_a_body_that_grows() -> None:
    """A small compressed body is decompressed up to the limit."""
    with server(respond(body=gzip.compress(bytes(10_000_000)), Content_Encoding="gzip")) as (url, _):
        assert len(http_client.ask(url, within=10, most=100_000).body) == 100_000


def test_a_body_that_drips() -> None:
    """The limit of time is that of the whole answer."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            while True:
                handler.wfile.write(b"x")
                time.sleep(0.05)

    with server(drip) as (url, _), pytest.raises(TimeoutError):
        http_client.ask(url, within=0.5)


def test_a_server_that_is_gone() -> None:
    """The error is that of the socket."""
    with server(respond()) as (url, _):
        pass
    with pytest.raises(ConnectionRefusedError):
        http_client.ask(url, within=5)


def test_a_server_that_is_gone_while_an_error_is_handled() -> None:
    """The error is that of the socket, and not the one that was there before."""

    def ask() -> None:
        try:
            raise ValueError("before")
        except ValueError:
            http_client.ask(f"http://127.0.0.1:{free_port()}", within=5)

    with pytest.raises(ConnectionRefusedError):
        ask()


def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the variables are used, except for inference servers, which are in the cluster."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with server(respond(418)) as (proxy, _), server(respond()) as (url, heard):
        monkeypatch.setenv("http_proxy", proxy)
        answers = [http_client.ask(url, within=5, uses_proxies=uses).status for uses in (True, False)]

    assert answers == [418, 200]
    assert len(heard) == 1


def test_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is given comes before the variables; without proxies, these do not count."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/bundle.pem")

    sessions = [
        http_client.session("https://a"),
        http_client.session("https://a", authorities="/own.pem"),
        http_client.session("https://a", authorities=False),
        http_client.session("https://a", uses_proxies=False),
    ]
    assert [one.verify for one in sessions] == ["/bundle.pem", "/own.pem", False, True]


def test_a_webhook_that_fails(tmp_path: Path) -> None:
    """Its failure is counted and logged; the run is complete, since nothing of it is missing."""
    with server(respond(500)) as (url, heard):
        exporters = ["jsonl", {"webhook": {"url": url, "events": ["*"]}}]
        run = otel_rl.init(dir=tmp_path, exporters=exporters, hardware=False, quiet=True)
        for step in range(3):
            with run.step(step):
                run.log({"loss": 1.0})
            run.event("checkpoint")
        result = run.finish(60)

    assert len(heard) >= 3
    assert result.delivered, result.missing
    assert "the webhook answered 500" in read_status(directories.at(run.dir)).last_error["webhook"]

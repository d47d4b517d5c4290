"""The live servers of HTTP: bytes on a socket."""

from __future__ import annotations

import errno
import gzip
import re
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics import MeterProvider

from otel_rl.export import RunInfo
from otel_rl.serve.bridge.http import HttpServer
from otel_rl_exporters.prometheus import PrometheusReader
from tests.fuzz import samples
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target
from tests.fuzz.targets.requests import Sinks
from tests.serve.bridge.bridges import ask

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.otlp.serving import Serving

_STATUS = re.compile(rb"^HTTP/1\.[01] ([0-9]{3}) ", re.MULTILINE)
_PROTOBUF = {"Content-Type": "application/x-protobuf"}
_WAIT_S = 20.0
_TURNS = 20
"""Turns of the server's loop without a request in progress, after which it has read everything."""
_CHECK_EVERY = 50
_RENEW_EVERY = 1000


class _HttpServer(Target):
    """Bytes on a connection to a server of HTTP, which responds or closes, and never with 500."""

    is_contained = False  # Tornado imports encodings of host names
    port: int
    serving: Serving

    def is_busy(self) -> bool:
        """Return whether a request is being handled."""
        raise NotImplementedError

    def exchange(self, data: bytes) -> bytes:
        """Send bytes and no more, and return what comes until the server closes the connection."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), _WAIT_S) as connection:
            try:
                connection.sendall(data)
                self._settle()
                connection.shutdown(socket.SHUT_WR)  # Tornado drops the response if this comes before it
                while part := connection.recv(1 << 16):
                    answer += part
            except OSError as error:  # the server refused the rest
                if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                    raise
        if answer and not answer.startswith(b"HTTP/1."):
            raise Broken(f"no response of HTTP: {answer[:200]!r}")
        if b"500" in _STATUS.findall(answer):
            raise Broken(f"500: {answer[:500]!r}")
        return answer

    def _settle(self) -> None:
        """Wait until the server has read what was sent, and has responded to each whole request."""
        quiet = 0
        while quiet < _TURNS:
            turned = threading.Event()
            self.serving._loop.call_soon_threadsafe(turned.set)
            turned.wait(_WAIT_S)
            quiet = 0 if self.is_busy() else quiet + 1


class Http(_HttpServer):
    """Requests to the bridge, which still responds to a good one after them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sinks = Sinks(folder)
        self._server = HttpServer(("127.0.0.1", 0), self._sinks.bridge)
        self.port, self.serving = self._server.port, self._server._serving
        self._inputs = 0
        self._good = _http("POST", "/v1/logs", samples.log_events().SerializeToString(), {"Connection": "close"})

    def seeds(self) -> list[bytes]:
        body = samples.log_events().SerializeToString()
        contents = (body, gzip.compress(body), b"{}", b'{"resourceLogs": 1e999}', b"\xff", b"")
        odd = [{"Content-Type": kind} for kind in ("application/x-protobuf", "application/json", "application/*", "")]
        odd += [{"Content-Encoding": name} for name in ("gzip", "deflate", "br", "gzip, gzip", "\t")]
        paths = ("/v1/logs", "/v1/traces/", "/v1/metrics?x=1", "//v1")
        found = [_http("POST", path, content, one) for path in paths for content in contents for one in odd]
        chunks = (
            b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (self._good[-90:-40], self._good[-40:]))
            + b"0\r\n\r\n"
        )
        head = b"POST /v1/logs HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"
        return [
            *found,
            self._good,
            head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
            self._good[:-10],
            *(head + more for more in (b"Content-Length: -5\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")),
            head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
            head + b"X: " + b"a" * (70 << 10) + b"\r\n\r\n",
            *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", bytes(100)),
        ]

    def check(self, data: bytes) -> None:
        self._inputs += 1
        if self._inputs % _RENEW_EVERY == 0:
            self._sinks.renew()
            self._server._sink = self._sinks.bridge
        self.exchange(data)
        if self._inputs % _CHECK_EVERY == 0 and (status := ask(self.port)[0].status) != 200:
            raise Broken(f"the server responds with {status} to a good request")

    def is_busy(self) -> bool:
        return self._server.requests > 0

    def close(self) -> None:
        self._server.close()
        self._sinks.close()


class Scrape(_HttpServer):
    """Requests to the metrics endpoint."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._reader = PrometheusReader(RunInfo("run", "p", "run", str(folder), {}), port=0)
        self._provider = MeterProvider([self._reader.reader])
        self._provider.get_meter("fuzz").create_counter("requests", description="x").add(1, {"of": 'a\nb"c'})
        self.port, self.serving = int(urlsplit(str(self._reader.address)).port or 0), self._reader._serving

    def seeds(self) -> list[bytes]:
        accepts = ("text/plain", "*/*", "text/plain;version=1.0.0;escaping=underscores")
        accepts += tuple(f"application/openmetrics-text;version={one}" for one in ("1.0.0", "0.0.1"))
        lines = [f"{name}: {value}" for value in accepts for name in ("Accept", "X-Other")] + ["Accept-Encoding: gzip"]
        heads = [f"{method} /metrics HTTP/1.1\r\nHost: a" for method in ("GET", "HEAD", "POST")]
        return [f"{head}\r\n{line}\r\nConnection: close\r\n\r\n".encode() for head in heads for line in lines]

    def check(self, data: bytes) -> None:
        self.exchange(data)

    def is_busy(self) -> bool:
        running, following = self._reader._pages._running, self._reader._pages._next
        return following is not None or (running is not None and not running.done())

    def close(self) -> None:
        self._provider.shutdown()
        self._reader.shutdown()


def _http(method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (_PROTOBUF | headers).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body

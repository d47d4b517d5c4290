"""OTLP over HTTP: protobuf and JSON.

Source: the OTLP specification 1.x, "OTLP/HTTP": paths, encodings, statuses, partial success.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from tornado.httpserver import HTTPServer
from tornado.log import gen_log
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, stream_request_body

from otel_rl.otlp.bridge import bodies
from otel_rl.otlp.bridge.answers import (
    FAILED,
    JSON,
    LATER,
    MALFORMED,
    NOT_FOUND,
    PROTOBUF,
    TOO_LARGE,
    UNAUTHENTICATED,
    WRONG_METHOD,
    Refusal,
    Refusals,
    encoded,
)
from otel_rl.otlp.signals import SERVICES

if TYPE_CHECKING:
    import ssl

    from tornado.iostream import IOStream

logger = logging.getLogger(__name__)
_IDLE_S = 60.0
"""Timeout in seconds for the headers of a request, after which the connection is closed."""
_BODY_S = 60.0
"""Timeout in seconds for a body; 16 MiB in that time are 2.2 Mbit/s."""
_MOST_CONNECTIONS = 4096
"""The largest number of connections, unless half of the process's descriptor limit is lower."""
_MOST_DESCRIPTORS = 1 << 16
_MOST_HELD = 256 << 20
"""The memory limit for the bodies of all connections, in bytes."""
_MOST_DRAINED = 64 << 20
"""How much of a refused body is read, in bytes: a client that is still sending would miss the response."""
_THREADS = 32
_MOST_WAITING = 256
"""The largest number of requests that wait for a thread."""
_ORIGIN = re.compile(r"^https?://[^/]*", re.IGNORECASE)
_SIGNALS = {f"/v1/{signal}": signal for signal in SERVICES}


class Sink(Protocol):
    """A handler of requests."""

    refusals: Refusals

    def take_request(self, signal: str, request: Any) -> Any:
        """Handle a request, and return the response.

        Raises:
            OSError: It cannot be accepted now; the client should retry.
            Refusal: It is not accepted.
        """


def respond(sink: Sink, signal: str, request: Any) -> Any:
    """Return the sink's response to a request.

    Raises:
        Refusal: The sink did not accept it.
    """
    try:
        return sink.take_request(signal, request)
    except Refusal:
        raise
    except OSError as error:
        raise Refusal(LATER, f"{signal} cannot be accepted now: {error}") from error
    except Exception as error:
        logger.exception("cannot handle a request for %s", signal)
        raise Refusal(FAILED, "internal error; the log of the receiver has the details") from error


def check_token(authorization: str, token: str) -> None:
    """Compare the `Authorization` header with the required bearer token, in constant time.

    Raises:
        Refusal: They differ.
    """
    scheme, _, given = authorization.partition(" ")
    if token and not (scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())):
        text = "the header 'Authorization: Bearer TOKEN' is missing or has another token"
        raise Refusal(UNAUTHENTICATED, text, {"WWW-Authenticate": "Bearer"})


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on an address; `::` includes IPv4.

    Raises:
        OSError: The address is in use, or belongs to another machine.
    """
    if host in ("::", "[::]") and socket.has_dualstack_ipv6():
        found = socket.create_server(("::", port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True)
        found.setblocking(False)
        return [found]
    sockets: list[socket.socket] = bind_sockets(port, host.strip("[]"))
    return sockets


class HttpServer:
    """An OTLP/HTTP server, which runs from its creation until `close`.

    One thread reads and writes all connections; up to 32 threads decode requests and wait for the sink.

    Args:
        address: Host and port; for port 0, a free one becomes `port`.
        sink: Handles the requests.
        token: The bearer token that clients must send; empty for none.
        tls: The TLS configuration, if connections are encrypted.

    Raises:
        OSError: The address is in use, or belongs to another machine.
    """

    def __init__(
        self, address: tuple[str, int], sink: Sink, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.sink = sink
        self.token = token
        self.held = self.waiting = 0
        self._sockets = listen(*address)
        self.port = int(self._sockets[0].getsockname()[1])
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="otel-rl-otlp")
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="otel-rl-http", daemon=True)
        self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Stop accepting, respond to the requests received within `timeout` seconds, and close all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(timeout + 1)
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        application = Application([(".*", _Handler, {"server": self})], log_function=lambda _: None)
        server = _Connections(
            application,
            ssl_options=self._tls,
            idle_connection_timeout=_IDLE_S,
            body_timeout=_BODY_S,
            max_header_size=64 << 10,
            max_body_size=1 << 62,  # the handler has its own limits, with better messages
        )
        server.most = _room()
        malformed = _Malformed(self.sink.refusals)
        gen_log.setLevel(logging.INFO)  # malformed connections are logged at this level
        gen_log.addFilter(malformed)
        server.add_sockets(self._sockets)
        await self._closing.wait()
        gen_log.removeFilter(malformed)
        server.stop()
        for _ in range(50):
            if not self.waiting:
                break
            await asyncio.sleep(0.1)
        try:
            await asyncio.wait_for(server.close_all_connections(), 1)
        except asyncio.TimeoutError:
            logger.info("closed connections that had not ended")


def _room() -> int:
    """Return the limit on connections, after raising the process's descriptor limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, soft // 2)


class _Malformed(logging.Filter):
    """A counter of connections that do not speak HTTP/1.1; Tornado would log each, and some clients retry forever."""

    def __init__(self, refusals: Refusals) -> None:
        super().__init__()
        self._refusals = refusals

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a record about such a connection; pass other errors, but not each failed handshake."""
        if not str(record.msg).startswith("Malformed HTTP message"):
            return record.levelno >= logging.ERROR
        text = record.getMessage()
        if "HTTP/2" in text:
            text += ": this port does not speak gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        self._refusals.note("malformed HTTP", text)
        return False


class _Connections(HTTPServer):
    """Tornado's server with a limit on connections; without free descriptors it would busy-loop."""

    open = 0
    most = _MOST_CONNECTIONS

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if self.open >= self.most:
            stream.close()
            return
        self.open += 1
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        self.open -= 1
        super().on_close(server_conn)


@stream_request_body
class _Handler(RequestHandler):
    server: HttpServer
    request: Any

    def initialize(self, server: HttpServer) -> None:
        """Store the arguments that Tornado passes to each handler."""
        self.server = server
        self._body = bytearray()
        self._seen = self._held = 0
        self._refusal: Refusal | None = None
        self._kind = PROTOBUF if bodies.media_type(self.request.headers.get("Content-Type", "")) == PROTOBUF else JSON
        self._signal = self._encoding = ""

    def prepare(self) -> None:
        """Check the headers before the body is read."""
        length = self.request.headers.get("Content-Length", "")
        try:
            self._check(length)
        except Refusal as refusal:
            waits = "expect" in self.request.headers  # for an interim response, before it sends the body
            self._refuse(refusal, at_once=(length.isdecimal() and int(length) > _MOST_DRAINED) or waits)

    def _check(self, length: str) -> None:
        headers = self.request.headers
        check_token(headers.get("Authorization", ""), self.server.token)
        path = _ORIGIN.sub("", self.request.path)  # clients that use a proxy send the whole URL
        self._signal = _SIGNALS.get(path.rstrip("/"), "")
        if not self._signal:
            raise Refusal(NOT_FOUND, f"unknown path {path[:100]!r}: use one of {', '.join(_SIGNALS)}")
        if self.request.method != "POST":
            raise Refusal(WRONG_METHOD, f"method {self.request.method} is not supported: use POST", {"Allow": "POST"})
        self._kind = bodies.content_type(headers.get("Content-Type", ""))
        self._encoding = bodies.encoding(headers.get("Content-Encoding", ""))
        if length.isdecimal() and int(length) > bodies.LARGEST_REQUEST:
            raise self._too_large()

    def data_received(self, chunk: bytes) -> None:
        """Store or discard a chunk of the body."""
        self._seen += len(chunk)
        if self._refusal is None:
            self._body += chunk
            self._held += len(chunk)
            self.server.held += len(chunk)
            if self._seen > bodies.LARGEST_REQUEST:
                self._refuse(self._too_large())
            elif self.server.held > _MOST_HELD:
                self._refuse(Refusal(LATER, "too many requests are being received"))
        elif self._seen > _MOST_DRAINED:
            self._refuse(self._refusal, at_once=True)

    async def post(self) -> None:
        """Respond after the whole body was received."""
        if self._refusal is None and self.server.waiting >= _MOST_WAITING:
            self._refuse(Refusal(LATER, "too many requests are waiting"))
        if self._refusal is not None:
            self._answer_refusal(self._refusal)
            return
        self.server.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self.server.pool, self._respond, bytes(self._body))
        except Refusal as refusal:
            self._answer_refusal(refusal)
        else:
            self._answer(200, body)
        finally:
            self.server.waiting -= 1

    get = head = put = delete = patch = options = post  # `prepare` has refused them

    def _respond(self, body: bytes) -> bytes:
        request = bodies.request(self._signal, body, self._kind, self._encoding)
        return encoded(respond(self.server.sink, self._signal, request), self._kind)

    def on_finish(self) -> None:
        """Release the body."""
        self.server.held -= self._held
        self._held = 0
        self._body = bytearray()

    def on_connection_close(self) -> None:
        """Release the body after the client has disconnected."""
        super().on_connection_close()
        self.on_finish()

    def write_error(self, status_code: int, **_: Any) -> None:
        """Respond to requests that Tornado itself refuses, such as an unknown method."""
        kind = WRONG_METHOD if status_code == WRONG_METHOD.http else MALFORMED if status_code < FAILED.http else FAILED
        headers = {"Allow": "POST"} if kind is WRONG_METHOD else {}
        self._answer_refusal(
            Refusal(kind, f"method {self.request.method[:20]}: {self._reason}: use POST on /v1/logs", headers)
        )

    def _too_large(self) -> Refusal:
        return Refusal(TOO_LARGE, f"the body has more than {bodies.LARGEST_REQUEST} bytes: send less at once")

    def _refuse(self, refusal: Refusal, *, at_once: bool = False) -> None:
        self._refusal = refusal
        self.on_finish()
        if at_once:
            self.set_header("Connection", "close")  # the rest of the body is not read
            self._answer_refusal(refusal)

    def _answer_refusal(self, refusal: Refusal) -> None:
        self.server.sink.refusals.note(f"HTTP {refusal.kind.http} for {self._signal or 'a request'}", str(refusal))
        for name, value in refusal.headers.items():
            self.set_header(name, value)
        self._answer(refusal.kind.http, encoded(refusal.status, self._kind))

    def _answer(self, status: int, body: bytes) -> None:
        self.set_status(status)
        self.clear_header("Server")
        self.set_header("Content-Type", self._kind)
        self.finish(body)

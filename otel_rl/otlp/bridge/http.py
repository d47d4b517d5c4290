"""OTLP over HTTP: protobuf and JSON.

Source: the OTLP specification 1.x, "OTLP/HTTP": paths, encodings, statuses, partial success.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from tornado.web import RequestHandler, stream_request_body

from otel_rl.errors.sinks import log_of
from otel_rl.errors.texts import shown
from otel_rl.otlp.answers import (
    FAILED,
    JSON,
    LATER,
    MALFORMED,
    NOT_FOUND,
    PROTOBUF,
    UNAUTHENTICATED,
    WRONG_METHOD,
    Refusal,
    Refusals,
    encoded,
)
from otel_rl.otlp.bridge import bodies
from otel_rl.otlp.serving import Serving, listen, peer_of
from otel_rl.otlp.signals import SERVICES
from otel_rl.setup.tokens import Tokens

if TYPE_CHECKING:
    import ssl


logger = log_of(__name__)
_IDLE_S = 60.0
"""Timeout in seconds for the headers of a request, after which the connection is closed."""
_BODY_S = 60.0
"""Timeout in seconds for a body; 16 MiB in that time are 2.2 Mbit/s."""
_MOST_CONNECTIONS = 4096
"""The largest number of connections, unless half of the process's descriptor limit is lower."""
_MOST_DRAINED = 64 << 20
"""How much of a refused body is read, in bytes: a client that is still sending would miss the response."""
_MOST_HELD = 8 * bodies.LARGEST
"""The largest size of all bodies that are being received or wait to be handled, in bytes."""
_THREADS = 32
_ORIGIN = re.compile(r"^https?://[^/]*", re.IGNORECASE)
_SIGNALS = {f"/v1/{signal}": signal for signal in SERVICES}


class Sink(Protocol):
    """A handler of requests."""

    refusals: Refusals

    def handle(self, signal: str, request: Any, peer: str = "") -> Any:
        """Store or forward a request of the client at the address `peer`, and return the response.

        Raises:
            OSError: It cannot be accepted now; the client should retry.
            Refusal: It is not accepted.
        """


def respond(sink: Sink, signal: str, request: Any, peer: str) -> Any:
    """Return the sink's response to a request.

    Raises:
        Refusal: The sink did not accept it.
    """
    try:
        return sink.handle(signal, request, peer)
    except Refusal:
        raise
    except OSError as error:
        raise Refusal(LATER, f"{signal} cannot be accepted now: {error}") from error
    except Exception as error:
        logger.exception("cannot handle a request for %s", signal)
        raise Refusal(FAILED, "internal error; the log of the receiver has the details") from error


def check_token(authorization: str, tokens: Tokens) -> None:
    """Check that the `Authorization` header has a valid bearer token, if one is needed.

    Raises:
        Refusal: It has none.
    """
    if not tokens.accept(authorization):
        text = "the header 'Authorization: Bearer TOKEN' is missing or has another token"
        raise Refusal(UNAUTHENTICATED, text, {"WWW-Authenticate": "Bearer"})


class HttpServer:
    """An OTLP/HTTP server, which runs from its creation until `close`.

    One thread reads and writes all connections; up to 32 threads decode requests and wait for the sink.

    Args:
        address: Host and port; for port 0, a free one becomes `port`.
        sink: Handles the requests.
        tokens: The bearer tokens, of which clients must send one.
        tls: The TLS configuration, if connections are encrypted.

    Attributes:
        held: The size of all bodies that are being received or handled, in bytes; used by the server's thread alone.
        requests: The number of requests that wait for a thread or are handled.

    Raises:
        OSError: The address is in use, or belongs to another machine.
    """

    def __init__(
        self, address: tuple[str, int], sink: Sink, tokens: Tokens | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.sink = sink
        self.tokens = tokens or Tokens()
        self.held = self.requests = 0
        sockets = listen(*address)
        self.port = int(sockets[0].getsockname()[1])
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="otel-rl-otlp")
        self._serving = Serving(
            sockets,
            _Handler,
            {"server": self},
            sink.refusals,
            name="otel-rl-http",
            tls=tls,
            idle_s=_IDLE_S,
            body_s=_BODY_S,
            most=_MOST_CONNECTIONS,
            is_busy=lambda: self.requests > 0,
        )

    def close(self, timeout: float = 5.0) -> None:
        """Stop accepting, respond to the requests received within `timeout` seconds, and close all connections."""
        self._serving.close(timeout)
        self.pool.shutdown(wait=False, cancel_futures=True)


@stream_request_body
class _Handler(RequestHandler):
    server: HttpServer
    request: Any

    def initialize(self, server: HttpServer) -> None:
        """Store the arguments that Tornado passes to each handler."""
        self.server = server
        self._body = bytearray()
        self._seen = 0
        self._peer = peer_of(self.request.connection)
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
        check_token(headers.get("Authorization", ""), self.server.tokens)
        path = _ORIGIN.sub("", self.request.path)  # clients that use a proxy send the whole URL
        self._signal = _SIGNALS.get(path.rstrip("/"), "")
        if not self._signal:
            raise Refusal(NOT_FOUND, f"unknown path {shown(path)}: use one of {', '.join(_SIGNALS)}")
        if self.request.method != "POST":
            raise Refusal(WRONG_METHOD, f"method {self.request.method} is not supported: use POST", {"Allow": "POST"})
        self._kind = bodies.content_type(headers.get("Content-Type", ""))
        self._encoding = bodies.encoding(headers.get("Content-Encoding", ""))
        if length.isdecimal() and int(length) > bodies.LARGEST:
            raise bodies.too_large()

    def data_received(self, chunk: bytes) -> None:
        """Store or discard a chunk of the body."""
        self._seen += len(chunk)
        if self._refusal is None:
            if self._seen > bodies.LARGEST:
                self._refuse(bodies.too_large())
            elif self.server.held + len(chunk) > _MOST_HELD:
                self._refuse(Refusal(LATER, "too many requests are being received"))
            else:
                self.server.held += len(chunk)
                self._body += chunk
        elif self._seen > _MOST_DRAINED:
            self._refuse(self._refusal, at_once=True)

    async def post(self) -> None:
        """Respond after the whole body was received."""
        if self._refusal is not None:
            self._answer_refusal(self._refusal)
            return
        body, self._body = self._body, bytearray()  # held until it is handled, also if the client disconnects
        self.server.requests += 1
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self.server.pool, self._respond, body)
        except Refusal as refusal:
            self._answer_refusal(refusal)
        else:
            self._answer(200, answer)
        finally:
            self.server.requests -= 1
            self.server.held -= len(body)

    get = head = put = delete = patch = options = post  # `prepare` has refused them

    def _respond(self, body: bytearray) -> bytes:
        with bodies.decoded(self._signal, body, self._kind, self._encoding) as request:
            return encoded(respond(self.server.sink, self._signal, request, self._peer), self._kind)

    def on_finish(self) -> None:
        """Release the body."""
        self.server.held -= len(self._body)
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
            Refusal(kind, f"method {shown(self.request.method)}: {self._reason}: use POST on /v1/logs", headers)
        )

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

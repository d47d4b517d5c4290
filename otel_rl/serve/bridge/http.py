"""OTLP over HTTP: protobuf and JSON.

Source: the OTLP specification 1.x, "OTLP/HTTP": paths, encodings, statuses, partial success.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import (
    FAILED,
    JSON,
    LATER,
    NOT_FOUND,
    PROTOBUF,
    Refusal,
    RefusalCounter,
    encoded,
)
from otel_rl.recorder.otlp.gate import Gate
from otel_rl.recorder.otlp.serving import Serving, listen
from otel_rl.recorder.otlp.signals import SERVICES
from otel_rl.recorder.otlp.site import Answer
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.bridge import bodies

if TYPE_CHECKING:
    import ssl

    from otel_rl.recorder.otlp.site import Request


logger = log_of(__name__)
_IDLE_S = 60.0
"""Timeout in seconds for the headers of a request, after which the connection is closed."""
_BODY_S = 60.0
"""Timeout in seconds for a body; 16 MiB in that time are 2.2 Mbit/s."""
_MOST_CONNECTIONS = 4096
"""The largest number of connections, unless half of the process's descriptor limit is lower."""
_MOST_HELD = 28 << 20
"""The largest size of all bodies that are being received or wait to be handled, in bytes."""
_THREADS = 32
_ORIGIN = re.compile(r"^https?://[^/]*", re.IGNORECASE)
_SIGNALS = {f"/v1/{signal}": signal for signal in SERVICES}


class RequestSink(Protocol):
    """A handler of requests."""

    refusals: RefusalCounter

    def handle(self, signal: str, request: Any, peer: str = "") -> Any:
        """Store or forward a request of the client at the address `peer`, and return the response.

        Raises:
            OSError: It cannot be accepted now; the client should retry.
            Refusal: It is not accepted.
        """


def respond(sink: RequestSink, signal: str, request: Any, peer: str) -> Any:
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


class HttpServer:
    """An OTLP/HTTP server, which runs from its creation until `close`.

    One thread reads and writes all connections; up to 32 threads decode requests and wait for the sink.

    Args:
        address: Host and port; for port 0, a free one becomes `port`.
        sink: Handles the requests.
        tokens: The bearer tokens, of which clients must send one.
        tls: The TLS configuration, if connections are encrypted.

    Attributes:
        requests: The number of requests that wait for a thread or are handled.

    Raises:
        OSError: The address is in use, or belongs to another machine.
    """

    methods = ("POST",)

    def __init__(
        self,
        address: tuple[str, int],
        sink: RequestSink,
        tokens: Tokens | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._sink = sink
        self.requests = 0
        sockets = listen(*address)
        self.port = int(sockets[0].getsockname()[1])
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="otel-rl-otlp")
        self._serving = Serving(
            sockets,
            self,
            Gate(tokens or Tokens(), address[0]),
            sink.refusals,
            name="otel-rl-http",
            tls=tls,
            idle_s=_IDLE_S,
            body_s=_BODY_S,
            most=_MOST_CONNECTIONS,
            most_held=_MOST_HELD,
            is_busy=lambda: self.requests > 0,
        )

    @property
    def largest(self) -> int:
        """The largest body in bytes."""
        return bodies.LARGEST

    @property
    def held(self) -> int:
        """The size of all bodies that are being received or handled, in bytes."""
        return self._serving.visitors.held

    def close(self, timeout: float = 5.0) -> None:
        """Stop accepting, respond to the requests received within `timeout` seconds, and close all connections."""
        self._serving.close(timeout)
        # Without waiting: a sink that hangs would hold up the end of the process.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def check(self, request: Request) -> None:
        """Check the path, the content type and the encoding.

        Raises:
            Refusal: One of them is unknown.
        """
        if not _signal(request):
            raise Refusal(NOT_FOUND, f"unknown path {shown(request.path)}: use one of {', '.join(_SIGNALS)}")
        bodies.content_type(request.headers.get("content-type", ""))
        bodies.encoding(request.headers.get("content-encoding", ""))

    async def answer(self, request: Request, body: bytearray) -> Answer:
        """Return the sink's response, encoded like the request.

        Raises:
            Refusal: The sink did not accept the request.
        """
        self.requests += 1
        try:
            response = await asyncio.get_running_loop().run_in_executor(self._pool, self._respond, request, body)
        finally:
            self.requests -= 1
        if isinstance(response, Refusal):
            raise response
        return Answer(200, {"Content-Type": _kind(request)}, response)

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        """Return the status of a refused request, encoded like the request."""
        kind = _kind(request)
        return Answer(refusal.kind.http, {"Content-Type": kind}, encoded(refusal.status, kind))

    def _respond(self, request: Request, body: bytearray) -> bytes | Refusal:
        signal, kind = _signal(request), _kind(request)
        encoding = bodies.encoding(request.headers.get("content-encoding", ""))
        try:
            with bodies.decoded(signal, body, kind, encoding) as message:
                return encoded(respond(self._sink, signal, message, request.peer), kind)
        except Refusal as refusal:
            return refusal.alone()


def _signal(request: Request) -> str:
    """Return the signal of a request's path; empty if there is none."""
    path = _ORIGIN.sub("", request.path)  # clients that use a proxy send the whole URL
    return _SIGNALS.get(path.rstrip("/"), "")


def _kind(request: Request) -> str:
    """Return the content type of the response."""
    return PROTOBUF if bodies.media_type(request.headers.get("content-type", "")) == PROTOBUF else JSON

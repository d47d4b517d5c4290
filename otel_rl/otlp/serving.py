"""An HTTP server on a thread of its own, with limits on connections, for the bridge, the head and the metrics endpoint.

Slow and idle connections are closed by the options of Tornado's server.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.log import gen_log
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from otel_rl.errors.sinks import log_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from tornado.iostream import IOStream

    from otel_rl.otlp.answers import Refusals

logger = log_of(__name__)
_MOST_DESCRIPTORS = 1 << 16
_BACKLOG = 128


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on an address; `::` includes IPv4.

    Raises:
        OSError: The address is in use, or belongs to another machine.
    """
    if host in ("::", "[::]") and socket.has_dualstack_ipv6():
        found = socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        found.setblocking(False)
        return [found]
    sockets: list[socket.socket] = bind_sockets(port, host.strip("[]"), backlog=_BACKLOG)
    return sockets


def peer_of(connection: Any) -> str:
    """Return the address of the client of a connection, by which it is limited."""
    return str(connection.context.address[0])


class Serving:
    """A server that runs from its creation until `close`; one thread reads and writes all connections.

    Args:
        sockets: Where it listens.
        handler: The class that handles requests, with `arguments` for its `initialize`.
        refusals: Counts connections that do not speak HTTP.
        name: The name of the thread.
        tls: The TLS configuration, if connections are encrypted.
        idle_s: Timeout in seconds for the headers of a request, after which the connection is closed.
        body_s: Timeout in seconds for the body of a request.
        most: The largest number of connections, unless half of the process's descriptor limit is lower. One address
            may have a quarter of them.
        is_busy: Whether requests are still being handled; `close` waits for them.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        handler: type[RequestHandler],
        arguments: dict[str, Any],
        refusals: Refusals,
        *,
        name: str,
        tls: ssl.SSLContext | None = None,
        idle_s: float,
        body_s: float,
        most: int,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sockets = list(sockets)
        self._handler, self._arguments, self._refusals = handler, arguments, refusals
        self._tls, self._idle_s, self._body_s, self._most = tls, idle_s, body_s, most
        self._is_busy = is_busy
        self._open: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """The number of connections that are open."""
        return self._open.total()

    def close(self, timeout: float = 5.0) -> None:
        """Stop accepting, respond to the requests received within `timeout` seconds, and close all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(timeout + 1)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        application = Application([(".*", self._handler, self._arguments)], log_function=lambda _: None)
        server = _Connections(
            application,
            ssl_options=self._tls,
            idle_connection_timeout=self._idle_s,
            body_timeout=self._body_s,
            max_header_size=64 << 10,
            max_body_size=1 << 62,  # handlers have their own limits, with better messages
        )
        server.limit(self._open, _room(self._most), self._refusals)
        malformed = _Malformed(self._refusals)
        gen_log.setLevel(logging.INFO)  # malformed connections are logged at this level
        gen_log.addFilter(malformed)
        server.add_sockets(self._sockets)
        await self._closing.wait()
        gen_log.removeFilter(malformed)
        server.stop()
        for _ in range(50):
            if not self._is_busy():
                break
            await asyncio.sleep(0.1)
        try:
            await asyncio.wait_for(server.close_all_connections(), 1)
        except TimeoutError:
            logger.info("closed connections that had not ended")


def _room(most: int) -> int:
    """Return the limit on connections, after raising the process's descriptor limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return most if soft == resource.RLIM_INFINITY else min(most, soft // 2)


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

    def limit(self, connections: Counter[str], most: int, refusals: Refusals) -> None:
        """Accept at most so many connections, and a quarter of them from one address; count them by address."""
        self._most, self._most_each, self._refusals = most, max(1, most // 4), refusals
        self._open = connections

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        peer = str(address[0])
        if self._open.total() >= self._most or self._open[peer] >= self._most_each:
            self._refusals.note("connections over the limit", f"{self._open[peer]} from {peer} are open")
            stream.close()
            return
        self._open[peer] += 1
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        peer = peer_of(server_conn)
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]
        super().on_close(server_conn)

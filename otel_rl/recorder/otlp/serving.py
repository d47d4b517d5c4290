"""The HTTP server of the bridge, the head and the metrics endpoint, on a thread of its own.

Whatever it serves, its handler of requests, its gate and its limits are the same.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.log import gen_log
from tornado.netutil import bind_sockets
from tornado.web import Application

from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files import freed_memory
from otel_rl.recorder.otlp.site import Handler
from otel_rl.recorder.otlp.visitors import Visitors

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from tornado.iostream import IOStream

    from otel_rl.recorder.otlp.answers import RefusalCounter
    from otel_rl.recorder.otlp.gate import Gate
    from otel_rl.recorder.otlp.site import Site

logger = log_of(__name__)
_MOST_DESCRIPTORS = 1 << 16
_BACKLOG = 128
_LARGEST_HEADERS = 16 << 10
"""In bytes: those of all connections are in memory while they arrive."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on an address; `::` includes IPv4.

    Raises:
        OSError: The address is in use, or belongs to another machine.
    """
    if host in ("::", "[::]") and socket.has_dualstack_ipv6():
        listener = socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        listener.setblocking(False)
        return [listener]
    sockets: list[socket.socket] = bind_sockets(port, host.strip("[]"), backlog=_BACKLOG)
    return sockets


def listen_from(host: str, port: int, count: int = 100) -> tuple[list[socket.socket], int]:
    """Return sockets that listen on the first free one of so many ports, and the port; any free one for port 0.

    Raises:
        OSError: None is free, or the address belongs to another machine.
        ValueError: It is not a port.
    """
    last = min(port + count, 1 << 16) - 1 if port else 0
    for candidate in range(port, last + 1):
        try:
            sockets = listen(host, candidate)
        except OSError as error:
            if candidate == last:
                where = f"from {port} to {last}" if port else "at all"
                raise OSError(f"no port {where} is free on {host} ({error.strerror})") from error
        else:
            return sockets, int(sockets[0].getsockname()[1])
    raise ValueError(f"invalid port={port}: must be between 0 and 65535")


class Serving:
    """A server that runs from its creation until `close`; one thread reads and writes all connections.

    Args:
        sockets: Where it listens.
        site: What it serves.
        gate: Decides who is answered.
        refusals: Counts refused requests, and connections that do not speak HTTP.
        name: The name of the thread.
        tls: The TLS configuration, if connections are encrypted.
        idle_s: Timeout in seconds for the headers of a request, after which the connection is closed.
        body_s: Timeout in seconds for the body of a request.
        most: The largest number of connections, unless half of the process's descriptor limit is lower. One address
            may have a quarter of them.
        most_held: The largest size in bytes of all bodies that are being received or handled.
        is_busy: Whether requests are still being handled; `close` waits for them.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        site: Site,
        gate: Gate,
        refusals: RefusalCounter,
        *,
        name: str,
        tls: ssl.SSLContext | None = None,
        idle_s: float,
        body_s: float,
        most: int,
        most_held: int = 0,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sockets = list(sockets)
        self._site, self._gate, self._refusals = site, gate, refusals
        self._tls, self._idle_s, self._body_s = tls, idle_s, body_s
        self._is_busy = is_busy
        freed_memory.lend_large_blocks()
        freed_memory.share_arenas()
        self.visitors = Visitors(_room(most), most_held)
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

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
        of_handlers = {"site": self._site, "gate": self._gate, "visitors": self.visitors, "refusals": self._refusals}
        application = Application([(".*", Handler, of_handlers)], log_function=lambda _: None)
        server = _Connections(
            application,
            ssl_options=self._tls,
            idle_connection_timeout=self._idle_s,
            body_timeout=self._body_s,
            max_header_size=_LARGEST_HEADERS,
            max_body_size=1 << 62,  # the handler has its own limit, with a better message
        )
        server.limit(self.visitors, self._refusals)
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
    # Half of the descriptors: with 1,024 for 1,024 connections the limit was none, and `accept` failed again and again.
    return most if soft == resource.RLIM_INFINITY else min(most, soft // 2)


class _Malformed(logging.Filter):
    """A counter of connections that do not speak HTTP/1.1; Tornado would log each, and some clients retry forever."""

    def __init__(self, refusals: RefusalCounter) -> None:
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

    def limit(self, visitors: Visitors, refusals: RefusalCounter) -> None:
        """Accept the connections that `visitors` admits."""
        self._visitors, self._refusals = visitors, refusals

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if self._visitors.enter(stream, str(address[0])):
            super().handle_stream(stream, address)
            return
        self._refusals.note("connections over the limit", f"{len(self._visitors)} are open; one from {address[0]}")
        stream.close()

    def on_close(self, server_conn: Any) -> None:
        self._visitors.leave(self._visitors[server_conn.stream])
        super().on_close(server_conn)

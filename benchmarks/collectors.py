"""Collectors that fail, each in its own way, on a port of 127.0.0.1."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_SLOW_S = 2.0


@contextmanager
def none() -> Iterator[str]:
    """No collector, and none wanted."""
    yield ""


@contextmanager
def dead() -> Iterator[str]:
    """A port that refuses: it was just free, and is bound without listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield _url(bound.getsockname()[1])


@contextmanager
def black_hole() -> Iterator[str]:
    """A port that accepts, and never reads nor answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield _url(listening.getsockname()[1])


@contextmanager
def slow() -> Iterator[str]:
    """A collector that takes everything, two seconds later."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield _url(server.server_port)
    server.shutdown()
    server.server_close()


class _Slow(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(_SLOW_S)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


COLLECTORS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "none": none,
    "dead": dead,
    "black hole": black_hole,
    "slow (2 s)": slow,
}

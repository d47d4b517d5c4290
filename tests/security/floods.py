"""A stranger's requests of the worst kinds, many of each, from a process of its own: `floods KIND PORT`."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc

from otel_rl.serve.bridge import bodies
from tests.serve.bridge.bridges import step_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBER = int(os.environ.get("FLOOD", "250"))
"""Requests of a flood; the table in docs/reference/limits.md is of 1,000."""
_AT_ONCE = 100
_STAY_S = 5.0
_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_POST = "POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"


def _send(port: int, *pieces: bytes, reads: bool = True, stays: bool = False) -> None:
    """Send a request in pieces; wait for the answer, for its beginning alone, or for nothing."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        if not reads:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for piece in pieces:
            connection.sendall(piece)
        if stays:
            time.sleep(_STAY_S)
        elif reads:
            while connection.recv(1 << 20):
                pass


def _posted(body: bytes, length: int = 0, more: str = "") -> bytes:
    return f"{_POST}{more}Connection: close\r\nContent-Length: {length or len(body)}\r\n\r\n".encode() + body


def _record(size: int) -> bytes:
    """Return a valid request of about so many bytes."""
    one = step_metrics("run", {0: {"loss": 1.0}})
    one.resource_logs[0].scope_logs[0].log_records[0].body.string_value = "x" * size
    return one.SerializeToString()


_PAGE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
_LARGE, _HALF = bodies.LARGEST - 1000, b"\x0a" + bytes(bodies.LARGEST - 2000)


def _over_grpc(size: int) -> Callable[[int], None]:
    body = _record(size)

    def flood(port: int) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(20)]
        calls = [channels[n % 20].unary_unary(_EXPORT).future(body, timeout=60) for n in range(NUMBER)]
        for call in calls:
            call.code()

    return flood


def _threads(work: Callable[[int], Any], at_once: int = _AT_ONCE) -> Callable[[int], None]:
    def flood(port: int) -> None:
        left = iter(range(NUMBER))
        lock = threading.Lock()

        def run() -> None:
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                work(port)

        threads = [threading.Thread(target=run) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return flood


def _posts(body: bytes, length: int = 0, more: str = "", *, stays: bool = False) -> Callable[[int], None]:
    request = _posted(body, length, more)
    return _threads(lambda port: _send(port, request, stays=stays))


_GZIP = "Content-Encoding: gzip\r\n"
HTTP: dict[str, Callable[[], Callable[[int], None]]] = {
    "connections that send nothing": lambda: _threads(lambda port: _send(port, stays=True), NUMBER),
    "headers that never end": lambda: _threads(lambda port: _send(port, _PAGE + bytes(15_000), stays=True), NUMBER),
}
PAGE = {
    "bodies of 1 GB for a page": lambda: _threads(
        lambda port: _send(port, _PAGE + b"Content-Length: 1000000000\r\n\r\n", *[bytes(1 << 20)] * 1000)
    ),
    "pages that nobody reads": lambda: _threads(lambda port: _send(port, _PAGE + b"\r\n", reads=False, stays=True)),
}
OTLP = {
    "bodies of 16 MiB": lambda: _posts(_record(_LARGE)),
    "bodies of 16 MiB that never end": lambda: _posts(_HALF, bodies.LARGEST, stays=True),
    "bombs of gzip": lambda: _posts(gzip.compress(bytes(64 << 20)), more=_GZIP),
    "16 MiB of empty records": lambda: _posts(gzip.compress(_empty()), more=_GZIP),
    "bodies of 1 MiB": lambda: _posts(_record(1 << 20)),
}
GRPC = {
    "messages of 15 MiB": lambda: _over_grpc(15 << 20),
    "messages of 3.9 MiB": lambda: _over_grpc((39 << 20) // 10),
}
KINDS = HTTP | PAGE | OTLP | GRPC


def _empty() -> bytes:
    records = b"\x12\x00" * ((bodies.LARGEST - 100) // 2)
    scope = b"\x12" + _varint(len(records)) + records
    return b"\x0a" + _varint(len(scope)) + scope


def _varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


if __name__ == "__main__":
    KINDS[sys.argv[1]]()(int(sys.argv[2]))

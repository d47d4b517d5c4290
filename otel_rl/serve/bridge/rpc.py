"""OTLP over gRPC.

Source: the OTLP specification 1.x, "OTLP/gRPC": status codes, and `RetryInfo` for retryable ones.
"""

from __future__ import annotations

import threading
from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc

from otel_rl.recorder.otlp.answers import LATER, MALFORMED, PROTOBUF, Refusal
from otel_rl.recorder.otlp.gate import Gate
from otel_rl.recorder.otlp.signals import SERVICES
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.bridge import bodies
from otel_rl.serve.bridge.http import respond

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.serve.bridge.http import RequestSink

LARGEST = 4 << 20
"""The largest message in bytes, as sent and decompressed: a Collector has this limit too. gRPC reads it as a whole."""
_THREADS = 2
"""The largest number of messages that are read or handled at the same time."""
_MOST_WAITING = 16
"""Requests that wait for a thread, of which nothing but the headers is read; further ones are refused."""
_READ_WITHIN_S = 5.0
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.http2.lookahead_bytes", 16 << 10),  # of a message that nobody reads yet
    ("grpc.http2.bdp_probe", 0),  # it would make that MiB
    ("grpc.experimental.tcp_max_read_chunk_size", 64 << 10),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_allowed_incoming_connections", 1024),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_connection_age_ms", 300_000),  # clients connect again; a request that never ends is ended
    ("grpc.max_connection_age_grace_ms", 60_000),
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    # With it, gRPC's default, a second bridge on the port would start, and take a part of the requests.
    ("grpc.so_reuseport", 0),
]


def serve(address: str, sink: RequestSink, tokens: Tokens | None = None, credentials: Any = None) -> tuple[Any, int]:
    """Start a server; return it and its port.

    The arguments are those of `HttpServer`, but an address is one text, and TLS is configured by gRPC's credentials.

    Raises:
        RuntimeError: The port is in use.
    """
    serving = _GrpcHandler(sink, Gate(tokens or Tokens(), address.rpartition(":")[0]))
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), interceptors=[serving], options=_OPTIONS)
    # A message is read when its handler asks for it, if it is one of a stream: the client notices no difference.
    handlers = [
        grpc.method_handlers_generic_handler(
            f"opentelemetry.proto.collector.{service.name}",
            {"Export": grpc.stream_unary_rpc_method_handler(partial(serving.export, signal))},
        )
        for signal, service in SERVICES.items()
    ]
    server.add_generic_rpc_handlers(tuple(handlers))
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    return server, int(port)


class _GrpcHandler(grpc.ServerInterceptor):  # type: ignore[misc] # gRPC has no types
    def __init__(self, sink: RequestSink, gate: Gate) -> None:
        self._sink, self._gate = sink, gate
        self._lock = threading.Lock()
        self._waiting = 0
        self._later = partial(self._refuse, Refusal(LATER, "too many requests are waiting"))
        # A thread of its own: all others are taken when a request is refused for that.
        self._later.experimental_thread_pool = futures.ThreadPoolExecutor(1)  # type: ignore[attr-defined] # gRPC's name

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Refuse a request that would wait for too long."""
        handler = continuation(details)
        with self._lock:
            if handler is not None and self._waiting >= _MOST_WAITING:
                return grpc.stream_unary_rpc_method_handler(self._later)
            self._waiting += handler is not None
        return handler

    def export(self, signal: str, messages: Iterator[bytes], context: Any) -> bytes:
        """Respond to a request, whose message is read if its headers are valid."""
        with self._lock:
            self._waiting -= 1
        peer = _address(context.peer())
        try:
            self._gate.check(peer, _authority(context), dict(context.invocation_metadata()))
            with bodies.decoded(signal, _read(messages, context), PROTOBUF, "") as request:
                return bytes(respond(self._sink, signal, request, peer).SerializeToString())
        except Refusal as refusal:
            self._refuse(refusal, signal, context)
            raise  # `_refuse` has raised

    def _refuse(self, refusal: Refusal, of: Any, context: Any) -> None:
        """End a request; `of` is its signal, or the messages that are not read."""
        code = _CODES[refusal.kind.code]
        what = of if isinstance(of, str) else "a request"
        self._sink.refusals.note(f"gRPC {code.name} for {what}", str(refusal))
        context.set_trailing_metadata((("grpc-status-details-bin", refusal.status.SerializeToString()),))
        context.abort(code, str(refusal))


def _read(messages: Iterator[bytes], context: Any) -> bytes:
    """Return the message of a request; a client that sends it too slowly is cut off."""
    # gRPC has no time limit for reading a message, and there are only two threads.
    timer = threading.Timer(_READ_WITHIN_S, context.cancel)
    timer.start()
    try:
        return next(messages)
    except StopIteration:
        raise Refusal(MALFORMED, "the request has no message") from None
    finally:
        timer.cancel()


def _authority(context: Any) -> str:
    """Return the `:authority` of a request, which gRPC's Python does not make public."""
    # Without it, a page that points a name of its own to 127.0.0.1 could send requests (security/test_listeners.py).
    details = getattr(getattr(context, "_rpc_event", None), "call_details", None)
    return bytes(getattr(details, "host", b"")).decode(errors="replace")


def _address(peer: str) -> str:
    """Return the address in gRPC's name of a client, such as `ipv4:192.0.2.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer

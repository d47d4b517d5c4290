"""OTLP over gRPC.

Source: the OTLP specification 1.x, "OTLP/gRPC": status codes, and `RetryInfo` for retryable ones.
"""

from __future__ import annotations

from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc

from otel_rl.otlp.answers import PROTOBUF, Refusal
from otel_rl.otlp.bridge import bodies
from otel_rl.otlp.bridge.http import check_token, respond
from otel_rl.otlp.signals import SERVICES
from otel_rl.setup.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.otlp.bridge.http import Sink

_THREADS = 8
"""The largest number of requests that are received or handled at the same time: a thread reads a message."""
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = [
    ("grpc.max_receive_message_length", bodies.LARGEST),  # as sent, and decompressed
    ("grpc.max_concurrent_streams", 64),
    ("grpc.max_allowed_incoming_connections", 1024),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_connection_age_ms", 300_000),  # clients connect again; a request that never ends is ended
    ("grpc.max_connection_age_grace_ms", 60_000),
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.absolute_max_metadata_size", 64 << 10),
    ("grpc.so_reuseport", 0),
]


def serve(address: str, sink: Sink, tokens: Tokens | None = None, credentials: Any = None) -> tuple[Any, int]:
    """Start a server; return it and its port.

    The arguments are those of `HttpServer`, but an address is one text, and TLS is configured by gRPC's credentials.

    Raises:
        RuntimeError: The port is in use.
    """
    serving = _Serving(sink, tokens or Tokens())
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), interceptors=[serving], options=_OPTIONS)
    handlers = [
        grpc.method_handlers_generic_handler(
            f"opentelemetry.proto.collector.{service.name}",
            {"Export": grpc.unary_unary_rpc_method_handler(partial(serving.export, signal))},
        )
        for signal, service in SERVICES.items()
    ]
    server.add_generic_rpc_handlers(tuple(handlers))
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    return server, int(port)


class _Serving(grpc.ServerInterceptor):  # type: ignore[misc] # gRPC has no types
    def __init__(self, sink: Sink, tokens: Tokens) -> None:
        self._sink, self._tokens = sink, tokens

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Refuse a request without a valid token before its message is read."""
        try:
            check_token(str(dict(details.invocation_metadata).get("authorization", "")), self._tokens)
        except Refusal as refusal:
            return grpc.stream_unary_rpc_method_handler(partial(self._refuse, refusal))
        return continuation(details)

    def export(self, signal: str, body: bytes, context: Any) -> bytes:
        """Respond to a request."""
        peer = _address(context.peer())
        try:
            with bodies.decoded(signal, body, PROTOBUF, "") as request:
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


def _address(peer: str) -> str:
    """Return the address in gRPC's name of a client, such as `ipv4:192.0.2.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer

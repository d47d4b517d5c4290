"""OTLP over gRPC.

Source: the OTLP specification 1.x, "OTLP/gRPC": status codes, and `RetryInfo` for retryable ones.
"""

from __future__ import annotations

from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from otel_rl.otlp.bridge import bodies
from otel_rl.otlp.bridge.answers import Refusal
from otel_rl.otlp.bridge.http import check_token, respond
from otel_rl.otlp.signals import SERVICES

if TYPE_CHECKING:
    from otel_rl.otlp.bridge.http import Sink

_THREADS = 8
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = [
    ("grpc.max_receive_message_length", bodies.LARGEST_DECOMPRESSED),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.so_reuseport", 0),
]


def serve(address: str, sink: Sink, token: str = "", credentials: Any = None) -> tuple[Any, int]:
    """Start a server; return it and its port.

    The arguments are those of `HttpServer`, but an address is one text, and TLS is configured by gRPC's credentials.

    Raises:
        RuntimeError: The port is in use.
    """
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), options=_OPTIONS)
    handlers = [
        grpc.method_handlers_generic_handler(
            f"opentelemetry.proto.collector.{service.name}",
            {"Export": grpc.unary_unary_rpc_method_handler(partial(_export, signal, sink, token))},
        )
        for signal, service in SERVICES.items()
    ]
    server.add_generic_rpc_handlers(tuple(handlers))
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    return server, int(port)


def _export(signal: str, sink: Sink, token: str, body: bytes, context: Any) -> bytes:
    try:
        check_token(str(dict(context.invocation_metadata()).get("authorization", "")), token)
        return bytes(respond(sink, signal, bodies.request(signal, body)).SerializeToString())
    except Refusal as refusal:
        code = _CODES[refusal.kind.code]
        sink.refusals.note(f"gRPC {code.name} for {signal}", str(refusal))
        context.set_trailing_metadata((("grpc-status-details-bin", refusal.status.SerializeToString()),))
        context.abort(code, str(refusal))
        raise  # raised by `abort`

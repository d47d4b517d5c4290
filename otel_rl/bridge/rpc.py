"""OTLP over gRPC."""

from __future__ import annotations

from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from otel_rl.bridge import receive

if TYPE_CHECKING:
    from otel_rl.bridge.http import Sink

_THREADS = 8
_SERVICERS: dict[str, tuple[type, Any]] = {
    "logs": (logs_service_pb2_grpc.LogsServiceServicer, logs_service_pb2_grpc.add_LogsServiceServicer_to_server),
    "traces": (trace_service_pb2_grpc.TraceServiceServicer, trace_service_pb2_grpc.add_TraceServiceServicer_to_server),
    "metrics": (
        metrics_service_pb2_grpc.MetricsServiceServicer,
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
    ),
}


def serve(address: str, sink: Sink, token: str = "", credentials: Any = None) -> tuple[Any, int]:
    """Return a server that has begun to receive, and its port.

    Args:
        address: Host and port; port 0 for a free one.
        sink: What takes the requests.
        token: What senders must bring as their bearer token; empty for none.
        credentials: gRPC's server credentials, if connections are encrypted.

    Raises:
        RuntimeError: The port is taken.
    """
    options = [("grpc.max_receive_message_length", receive.LARGEST_DECOMPRESSED), ("grpc.so_reuseport", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), options=options)
    for signal, (servicer, add) in _SERVICERS.items():
        add(_service(servicer, signal, sink, token), server)
    add_port = server.add_insecure_port if credentials is None else partial(_add_secure_port, server, credentials)
    port = int(add_port(address))
    server.start()
    return server, port


def _add_secure_port(server: Any, credentials: Any, address: str) -> Any:
    return server.add_secure_port(address, credentials)


def _service(servicer: type, signal: str, sink: Sink, token: str) -> Any:
    def export(self: Any, request: Any, context: Any) -> Any:
        if not receive.is_allowed(str(dict(context.invocation_metadata()).get("authorization", "")), token):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            return sink.take_request(signal, request)
        except OSError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    return type(f"{signal.title()}Service", (servicer,), {"Export": export})()

"""Responses to OTLP requests that were accepted completely or in part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

if TYPE_CHECKING:
    from otel_rl.otlp.bridge.answers import Refusals

_RESPONSES: dict[str, tuple[Any, str]] = {
    "logs": (logs_service_pb2.ExportLogsServiceResponse, "rejected_log_records"),
    "traces": (trace_service_pb2.ExportTraceServiceResponse, "rejected_spans"),
    "metrics": (metrics_service_pb2.ExportMetricsServiceResponse, "rejected_data_points"),
}


def response(signal: str, rejected: int, reason: str, refusals: Refusals) -> Any:
    """Return the response to a request of which `rejected` records, spans or data points were refused."""
    message, field = _RESPONSES[signal]
    answer = message()
    if rejected:
        refusals.note(f"refused {signal}", f"{rejected} refused: {reason}", rejected)
        setattr(answer.partial_success, field, rejected)
        answer.partial_success.error_message = reason
    return answer


def data_points(request: Any) -> int:
    """Return the number of data points in a request for metrics."""
    count = 0
    for of_resource in request.resource_metrics:
        for scope in of_resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                count += len(getattr(metric, kind).data_points) if kind else 0
    return count

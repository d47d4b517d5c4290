"""OTLP's signals: their services and messages, and the ids in JSON.

Source: opentelemetry-proto 1.x, `collector/*/v1`; the OTLP specification, "JSON Protobuf Encoding".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

if TYPE_CHECKING:
    from collections.abc import Callable


class Service(NamedTuple):
    """The service of a signal, its messages, and the field with the number of refused records in a response."""

    name: str
    request: Any
    response: Any
    rejected: str


SERVICES = {
    "logs": Service(
        "logs.v1.LogsService", logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse, "rejected_log_records"
    ),
    "traces": Service(
        "trace.v1.TraceService", traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse, "rejected_spans"
    ),
    "metrics": Service(
        "metrics.v1.MetricsService",
        metrics.ExportMetricsServiceRequest,
        metrics.ExportMetricsServiceResponse,
        "rejected_data_points",
    ),
}
"""By signal; the name of a service follows `opentelemetry.proto.collector.`."""
_IDS = ("traceId", "spanId", "parentSpanId")


def with_ids(value: Any, convert: Callable[[str], str]) -> Any:
    """Return a message in JSON with other ids: they are hexadecimal in OTLP, and base64 in protobuf's JSON."""
    if isinstance(value, dict):
        return {key: convert(item) if key in _IDS else with_ids(item, convert) for key, item in value.items()}
    return [with_ids(item, convert) for item in value] if isinstance(value, list) else value

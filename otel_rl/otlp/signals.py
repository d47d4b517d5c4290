"""The services and messages of OTLP's signals.

Source: opentelemetry-proto 1.x, `opentelemetry/proto/collector/*/v1`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces


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

"""What is done with a request, whichever way it came."""

from __future__ import annotations

import gzip
import hmac
import io
import logging
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from otel_rl.bridge import decode

if TYPE_CHECKING:
    from otel_rl.bridge.runs import Runs

logger = logging.getLogger(__name__)
LARGEST_REQUEST = 16 << 20
LARGEST_DECOMPRESSED = 64 << 20
REQUESTS: dict[str, Any] = {
    "logs": logs_service_pb2.ExportLogsServiceRequest,
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
}
"""What OTLP calls the request of each signal."""
_RESPONSES: dict[str, Any] = {
    "logs": logs_service_pb2.ExportLogsServiceResponse,
    "traces": trace_service_pb2.ExportTraceServiceResponse,
}


class TooLargeError(ValueError):
    """A request has too many bytes, as it came or decompressed."""


def decompressed(body: bytes, encoding: str) -> bytes:
    """Return the body as it was before it was compressed.

    Raises:
        TooLargeError: It has more than 64 MiB; no more than these are ever held.
        ValueError: The encoding is unknown, or the body is not of it.
    """
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise ValueError(f"Content-Encoding {encoding!r}: there are gzip and identity")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            found = file.read(LARGEST_DECOMPRESSED + 1)
    except (OSError, EOFError) as error:
        raise ValueError(f"the body is no gzip: {error}") from error
    if len(found) > LARGEST_DECOMPRESSED:
        raise TooLargeError(f"more than {LARGEST_DECOMPRESSED} bytes when decompressed")
    return found


def is_allowed(authorization: str, token: str) -> bool:
    """Tell whether a request may come in; compared in constant time."""
    return not token or hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())


class IntoRuns:
    """Takes requests for the runs of a bridge."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def take_request(self, signal: str, request: Any) -> Any:
        """Keep what a request holds, and return the response that OTLP has for it: what was refused, and why.

        Raises:
            OSError: It cannot be kept now; the sender is to send it again.
        """
        if signal == "metrics":
            return metrics_refused(request)
        kinds = decode.logs if signal == "logs" else decode.traces
        found = kinds(request, self._runs.directory)
        for run, items in found.runs:
            self._runs.take(run, items)
        return response(signal, found.rejected, found.reason)


def response(signal: str, rejected: int, reason: str) -> Any:
    """Return the response to a request for logs or traces of which so many were refused."""
    answer: Any = _RESPONSES[signal]()
    if rejected:
        logger.warning("refused %d of %s: %s", rejected, signal, reason)
        setattr(answer.partial_success, "rejected_log_records" if signal == "logs" else "rejected_spans", rejected)
        answer.partial_success.error_message = reason
    return answer


def metrics_refused(request: Any) -> Any:
    """Refuse all data points: they belong to no step; what a tracker is to show comes as `rl.step.metrics`."""
    count = 0
    for of_resource in request.resource_metrics:
        for scope in of_resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                count += len(getattr(metric, kind).data_points) if kind else 0
    answer = metrics_service_pb2.ExportMetricsServiceResponse()
    if count:
        answer.partial_success.rejected_data_points = count
        answer.partial_success.error_message = "metrics belong to no step; send the log event rl.step.metrics"
    return answer

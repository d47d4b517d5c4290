"""A receiver of metrics by OTLP over HTTP that keeps what it accepts, decoded."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Receiver:
    """A receiver, and its answers.

    Args:
        statuses: Its answers to the first requests; the others it accepts. A refused client has to wait for an hour.

    Attributes:
        accepted: The requests that it accepted.
        endpoint: Its URL.
    """

    def __init__(self, statuses: list[int]) -> None:
        self.statuses = statuses
        self.accepted: list[ExportMetricsServiceRequest] = []
        self.endpoint = ""

    def points(self, name: str) -> list[list[tuple[str, Any]]]:
        """Return attribute values and value of each point of a metric, by request; the value of an end is "ended"."""
        return [
            [
                (",".join(map(_text, point.attributes)), "ended" if point.flags & 1 else _number(point))
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
                if metric.name == name
                for point in getattr(metric, metric.WhichOneof("data")).data_points
            ]
            for request in self.accepted
        ]


def _text(attribute: Any) -> str:
    return str(getattr(attribute.value, attribute.value.WhichOneof("value")))


def _number(point: Any) -> Any:
    return point.count if hasattr(point, "count") else getattr(point, point.WhichOneof("value"))


@contextlib.contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    """Run one."""
    receiver = Receiver(list(statuses))

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            if status == 200:
                receiver.accepted.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            if status != 200:
                self.send_header("Retry-After", "3600")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()

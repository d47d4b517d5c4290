"""Send rows with OpenTelemetry's own exporters.

`python -m tests.clients.rows ENDPOINT PROTOCOL COMPRESSION RUN ROWS BATCH`: it sends half of them, says so, and waits
for a line before it sends the others. Its last line is the number of rows that the exporter delivered, as far as it
knows.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk._logs import ReadableLogRecord


class Counting(LogRecordExporter):
    """An exporter that counts what it delivers."""

    def __init__(self, exporter: LogRecordExporter) -> None:
        self._exporter = exporter
        self.delivered = 0

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        result = self._exporter.export(batch)
        if result is LogRecordExportResult.SUCCESS:
            self.delivered += len(batch)
        return result

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self) -> None:
        self._exporter.shutdown()


def exporter(endpoint: str, protocol: str, compression: str) -> LogRecordExporter:
    """Return OpenTelemetry's exporter."""
    name = "Gzip" if compression == "gzip" else "NoCompression"
    if protocol == "grpc":
        return GrpcExporter(endpoint, insecure=True, compression=getattr(grpc.Compression, name))
    return HttpExporter(f"{endpoint}/v1/logs", compression=getattr(Compression, name))


def send(to: LogRecordExporter, run: str, rows: int, batch: int, *, pause: bool = True) -> int:
    """Send the rows; return how many were delivered."""
    counting = Counting(to)
    provider = LoggerProvider(Resource({"service.name": "python", "rl.run.id": run, "rl.run.project": "p"}))
    processor = BatchLogRecordProcessor(counting, 60_000, batch, max_queue_size=rows)
    provider.add_log_record_processor(processor)
    logger = provider.get_logger("trainer")
    for step in range(rows):
        if pause and step == rows // 2 and batch < rows:
            provider.force_flush()
            print("half", flush=True)  # noqa: T201
            sys.stdin.readline()
        values: dict[str, Any] = {"loss": 1 / (step + 3), "tokens": step}
        attributes: dict[str, Any] = {"rl.loop.iteration": step, "rl.step.values": values}
        logger.emit(LogRecord(event_name="rl.step.metrics", attributes=attributes))
    provider.shutdown()
    return counting.delivered


if __name__ == "__main__":
    endpoint, protocol, compression, run, rows, batch = sys.argv[1:]
    print(send(exporter(endpoint, protocol, compression), run, int(rows), int(batch)), flush=True)  # noqa: T201

"""Standard output for all three signals: `console` for people, and `otlp/stdout`, a request of OTLP in JSON per line.

These are values of `OTEL_TRACES_EXPORTER`, `OTEL_LOGS_EXPORTER` and `OTEL_METRICS_EXPORTER`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from otel_rl.export import Refused
from otel_rl.recorder.otlp.connection import Connection
from otel_rl_exporters.otlp import SignalExporter, sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import RunInfo
    from otel_rl.recorder.otlp.connection import Signal
    from otel_rl_exporters.otlp_sender import Sender


class _Console:
    """A sender that prints records with the SDK's own exporter for a terminal."""

    def __init__(self, exporter: ConsoleSpanExporter | ConsoleLogRecordExporter) -> None:
        self._exporter: Any = exporter

    def send(self, records: Sequence[tuple[int, Any]], _: int) -> None:
        """Print the records.

        Raises:
            Refused: The reader of standard output has closed it.
        """
        try:
            self._exporter.export([record for _, record in records])
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise Refused("standard output is closed") from error

    def close(self) -> None:
        """Do nothing: others use standard output too."""


class ConsoleTraces(SignalExporter):
    """`OTEL_TRACES_EXPORTER=console`."""

    signal = "TRACES"

    def _open(self) -> _Console:
        return _Console(ConsoleSpanExporter())


class ConsoleLogs(SignalExporter):
    """`OTEL_LOGS_EXPORTER=console`."""

    signal = "LOGS"

    def _open(self) -> _Console:
        return _Console(ConsoleLogRecordExporter())


class StdoutTraces(SignalExporter):
    """`OTEL_TRACES_EXPORTER=otlp/stdout`."""

    signal: ClassVar[Signal] = "TRACES"

    def _open(self) -> Sender:
        return sender(_standard_output(self.signal))


class StdoutLogs(StdoutTraces):
    """`OTEL_LOGS_EXPORTER=otlp/stdout`."""

    signal = "LOGS"


class ConsoleReader:
    """`OTEL_METRICS_EXPORTER=console`: every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds."""

    address: str | None = None

    def __init__(self, run: RunInfo) -> None:
        self.reader: Any = PeriodicExportingMetricReader(ConsoleMetricExporter())

    def shutdown(self) -> None:
        """Do nothing: the SDK shuts the reader down."""


class StdoutReader(ConsoleReader):
    """`OTEL_METRICS_EXPORTER=otlp/stdout`: every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds."""

    def __init__(self, run: RunInfo) -> None:
        from otel_rl_exporters.otlp_metrics import OtlpMetricExporter

        self.reader = PeriodicExportingMetricReader(OtlpMetricExporter(_standard_output("METRICS"), os.environ))


def _standard_output(signal: Signal) -> Connection:
    return Connection(signal=signal, protocol="stdout", endpoint="standard output", secure=False)

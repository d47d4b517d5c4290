"""Standard output for all three signals: `console` for people, and `otlp/stdout`, a request of OTLP in JSON per line.

These are values of `OTEL_TRACES_EXPORTER`, `OTEL_LOGS_EXPORTER` and `OTEL_METRICS_EXPORTER`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from otel_rl.export import Refused
from otel_rl.otlp.connection import Connection
from otel_rl.setup.otel_environment import limits
from otel_rl_exporters.otlp import readable_records, readable_spans, sender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item, RunInfo
    from otel_rl.otlp.connection import Signal


class _Printed:
    """Prints one signal of a run."""

    batch_size = 512

    def __init__(self, run: RunInfo) -> None:
        self._resource = Resource.create(dict(run.resource))
        self._limits = limits(os.environ)
        self._print = self._open()

    def export(self, items: Sequence[Item]) -> None:
        """Print the items of this signal among `items`.

        Raises:
            Refused: The reader of standard output has closed it.
        """
        try:
            self._print(items)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise Refused("standard output is closed") from error

    def shutdown(self) -> None:
        """Do nothing: others use standard output too."""

    def _open(self) -> Callable[[Sequence[Item]], object]:
        raise NotImplementedError


class ConsoleTraces(_Printed):
    """`OTEL_TRACES_EXPORTER=console`."""

    def _open(self) -> Callable[[Sequence[Item]], object]:
        console = ConsoleSpanExporter()
        return lambda items: console.export([one for _, one in readable_spans(items, self._resource, self._limits)])


class ConsoleLogs(_Printed):
    """`OTEL_LOGS_EXPORTER=console`."""

    def _open(self) -> Callable[[Sequence[Item]], object]:
        console = ConsoleLogRecordExporter()
        return lambda items: console.export([one for _, one in readable_records(items, self._resource, self._limits)])


class StdoutTraces(_Printed):
    """`OTEL_TRACES_EXPORTER=otlp/stdout`."""

    def _open(self) -> Callable[[Sequence[Item]], object]:
        to = sender(_standard_output("TRACES"))
        return lambda items: to.send(readable_spans(items, self._resource, self._limits), len(items))


class StdoutLogs(_Printed):
    """`OTEL_LOGS_EXPORTER=otlp/stdout`."""

    def _open(self) -> Callable[[Sequence[Item]], object]:
        to = sender(_standard_output("LOGS"))
        return lambda items: to.send(readable_records(items, self._resource, self._limits), len(items))


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

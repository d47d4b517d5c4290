"""OTLP: spans, and one log event per step, to any OpenTelemetry collector; metrics by a periodic reader.

Everything about the connection comes from the standard `OTEL_EXPORTER_OTLP_*` variables. Without
`OTEL_EXPORTER_OTLP_PROTOCOL` it is HTTP.
"""

from __future__ import annotations

import os
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as SdkEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from otel_rl import semconv
from otel_rl.export import Ended, Event, NotNow, Params, Refused, Row, Span, Table, Trajectory
from otel_rl.export import LogRecord as PrintedLine
from otel_rl.recorder.otlp.connection import connection
from otel_rl.recorder.settings.otel_environment import batch_size, limits
from otel_rl_exporters.otlp_gen_ai import as_operation, evaluations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    from otel_rl.export import Cell, Item, RunInfo
    from otel_rl.recorder.otlp.connection import Connection, Signal
    from otel_rl.recorder.settings.otel_environment import OtelLimits
    from otel_rl_exporters.otlp_sender import Sender

_Sent = Row | Params | Table | Event | Ended | PrintedLine
_LARGEST_TABLE = 1 << 17
_SCOPE = InstrumentationScope("otel_rl", schema_url=semconv.SCHEMA_URL)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SignalExporter:
    """Converts the items of one signal to objects of the SDK, and sends them."""

    batch_size = 512
    signal: ClassVar[Signal]

    def __init__(self, run: RunInfo) -> None:
        self._resource = Resource.create(dict(run.resource))
        self._limits = limits(os.environ)
        self._sender = self._open()

    def export(self, items: Sequence[Item]) -> None:
        """Send the items of this signal among `items`.

        Raises:
            Refused: The receiver refused some of them.
            NotNow: The receiver cannot accept them now.
        """
        readable = readable_spans if self.signal == "TRACES" else readable_records
        self._sender.send(readable(items, self._resource, self._limits), len(items))

    def shutdown(self) -> None:
        """Close the connection."""
        self._sender.close()

    def _open(self) -> Any:
        """Return a `Sender`, or another object with its methods."""
        return sender(connection(os.environ, self.signal))


class _ByVariables:
    """The set-up of one signal by `OTEL_EXPORTER_OTLP_*`."""

    signal: ClassVar[Signal]

    @classmethod
    def check(cls) -> None:
        """Raise if the variables name an address or a file that cannot be used."""
        connection(os.environ, cls.signal)

    @classmethod
    def pass_on(cls) -> Callable[[Message], None]:
        """Return a function that forwards whole requests of other programs; it raises as `export` does."""
        from otel_rl_exporters.otlp_transport import transport

        to = transport(connection(os.environ, cls.signal))

        def forward(request: Message) -> None:
            answer = to.send(request)
            if answer.verdict == "later":
                raise NotNow(answer.message, retry_after=answer.retry_after, error_type=answer.error_type)
            if answer.verdict != "taken" or answer.rejected:
                raise Refused(answer.message, count=answer.rejected or None, error_type=answer.error_type)

        return forward


class OtlpTraces(_ByVariables, SignalExporter):
    """Sends spans."""

    signal = "TRACES"


class OtlpLogs(_ByVariables, SignalExporter):
    """Sends rows, parameters, tables, rewards, events, and how the run ended, as log events.

    A row is the event `rl.step.metrics` with all its values in one map, so that a collector has every
    step exactly, whatever its export interval. A table is the event `rl.table` with its rows in the body: the
    first ones, as many as 128 KiB hold. Printed lines are log records without a name, with `output.send`.
    """

    signal = "LOGS"


class OtlpReader(_ByVariables):
    """Pushes metrics every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds (60 s if not set)."""

    signal = "METRICS"
    address: str | None = None
    failures = property(attrgetter("_exporter.failures"))
    causes = property(lambda self: dict(self._exporter.causes))
    refused = property(attrgetter("_exporter.refused"))
    last_error = property(attrgetter("_exporter.last_error"))

    def __init__(self, run: RunInfo) -> None:
        from otel_rl_exporters.otlp_metrics import OtlpMetricExporter

        self._exporter = OtlpMetricExporter(connection(os.environ, self.signal), os.environ)
        self.reader = PeriodicExportingMetricReader(self._exporter)

    def shutdown(self) -> None:
        """Do nothing: the SDK shuts the reader down."""


def sender(where: Connection) -> Sender:
    """Return a sender of spans or events to an address. Only the agent loads the modules that it needs."""
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    from otel_rl_exporters.otlp_sender import Sender
    from otel_rl_exporters.otlp_transport import transport

    encode: Callable[[Sequence[Any]], Any] = encode_spans if where.signal == "TRACES" else encode_logs
    return Sender(transport(where), encode, batch_size(os.environ, where.signal))


def readable_spans(items: Sequence[Item], resource: Resource, most: OtelLimits) -> list[tuple[int, ReadableSpan]]:
    """Return the spans among `items` as objects of the SDK, each with its index."""
    spans = ((n, as_operation(item)) for n, item in enumerate(items) if isinstance(item, Span))
    return [(n, _readable_span(span, resource, most)) for n, span in spans]


def readable_records(
    items: Sequence[Item], resource: Resource, most: OtelLimits
) -> list[tuple[int, ReadableLogRecord]]:
    """Return the events among `items` as objects of the SDK, each with its index."""
    numbered = ((n, shown) for n, item in enumerate(items) for shown in _shown(item))
    records = [(n, log_record(shown), shown) for n, shown in numbered]
    for _, record, _ in records:
        record.attributes = _bounded(record.attributes or {}, most.record_attributes, most.record_text)
    return [(n, ReadableLogRecord(record, resource, _scope_of(shown))) for n, record, shown in records]


def _shown(item: Item) -> Sequence[_Sent]:
    if isinstance(item, Trajectory):
        return evaluations(item)
    return (item,) if isinstance(item, Row | Params | Table | Event | Ended | PrintedLine) else ()


def _scope_of(item: _Sent) -> InstrumentationScope:
    """Return the scope of a record: of a message of logging it is the logger, as in OpenTelemetry's own handler."""
    return _scope((item.logger, "")) if isinstance(item, PrintedLine) and item.logger else _SCOPE


def _readable_span(span: Span, resource: Resource, most: OtelLimits) -> ReadableSpan:
    def within(attributes: dict[str, Any], count: int | None) -> Any:
        return _bounded(attributes, count, most.span_text)

    status = Status(StatusCode.OK if span.ok else StatusCode.UNSET)
    if span.error is not None:
        status = Status(StatusCode.ERROR, span.error)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        # Not `Resource.create`, which would give another program's span the attributes of this process.
        resource=Resource(span.resource) if span.resource else resource,
        attributes=within(span.attributes, most.span_attributes),
        events=BoundedList.from_seq(
            most.events,
            [SdkEvent(e.name, within(e.attributes, most.event_attributes), e.time_unix_nano) for e in span.events],
        ),
        links=BoundedList.from_seq(
            most.links,
            [
                Link(_context(link.trace_id, link.span_id), within(link.attributes, most.link_attributes))
                for link in span.links
            ],
        ),
        kind=SpanKind(span.kind),
        status=status,
        start_time=span.start_unix_nano,
        end_time=span.end_unix_nano,
        instrumentation_scope=_scope(span.scope) if any(span.scope) or span.resource else _SCOPE,
    )


@lru_cache(maxsize=256)  # the encoder puts spans of equal scopes together
def _scope(tracer: tuple[str, str]) -> InstrumentationScope:
    name, version = tracer
    return InstrumentationScope(name, version or None)


def _bounded(attributes: Any, count: int | None, text: int | None) -> Any:
    """Return the attributes within limits, in a mapping that counts dropped ones, or the same object."""
    if text is None and (count is None or len(attributes) <= count):
        return attributes
    return BoundedAttributes(count, attributes, immutable=True, max_value_len=text)


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def log_record(item: _Sent) -> LogRecord:
    """Return the log event that carries `item`; it points at the span that it belongs to, if there is one."""
    if isinstance(item, PrintedLine):
        return _printed(item)
    name, attributes, body = _table_event(item) if isinstance(item, Table) else (*_event(item), None)
    context = None
    if isinstance(item, Row | Event) and item.trace_id and item.span_id:
        context = set_span_in_context(NonRecordingSpan(_context(item.trace_id, item.span_id)))
    return LogRecord(
        timestamp=item.time_unix_nano,
        observed_timestamp=item.time_unix_nano,
        context=context,
        event_name=name,
        body=body,
        severity_number=SeverityNumber.INFO,
        attributes=attributes,
    )


def _printed(line: PrintedLine) -> LogRecord:
    """Return the log record of a printed line, or of a message of logging."""
    where = {semconv.LOOP_ITERATION: line.step, semconv.RANK: line.rank}
    named = {semconv.ROLE: line.role, semconv.HOST_NAME: line.host, semconv.PHASE: line.phase}
    stream = line.stream if line.stream in ("stdout", "stderr") else ""
    attributes = {name: value for name, value in where.items() if value is not None}
    attributes |= _given(named | {semconv.LOG_IOSTREAM: stream, semconv.RUN_ATTEMPT: line.attempt}) | line.attributes
    context = None
    if line.trace_id and line.span_id:
        context = set_span_in_context(NonRecordingSpan(_context(line.trace_id, line.span_id)))
    return LogRecord(
        timestamp=line.time_unix_nano,
        observed_timestamp=line.time_unix_nano,
        context=context,
        body=f"{line.text} ({line.repeated} times)" if line.repeated > 1 else line.text,
        severity_number=SeverityNumber(line.severity),
        severity_text=SeverityNumber(line.severity).name if line.severity else None,
        attributes=attributes,
    )


def _event(item: Row | Params | Event | Ended) -> tuple[str, dict[str, Any]]:
    if isinstance(item, Row):
        values = {name: _signed(value) for name, value in item.values.items()}
        optional = {
            semconv.RUN_ATTEMPT: item.attempt,
            semconv.STEP_MISSING_RANKS: list(item.missing_ranks),
            semconv.STEP_LATE: item.late,
            semconv.STEP_PART: item.part,
            semconv.STEP_PARTIAL: item.partial,
        }
        required = {semconv.LOOP_ITERATION: item.step, semconv.STEP_VALUES: values}
        return semconv.EVENT_STEP_METRICS, required | _given(optional)
    if isinstance(item, Params):
        config = {name: _signed(value) for name, value in item.values.items()}
        return semconv.EVENT_RUN_CONFIG, {semconv.RUN_CONFIG_VALUES: config}
    if isinstance(item, Ended):
        ended = {
            semconv.RUN_ATTEMPT: item.attempt,
            semconv.RUN_OUTCOME: item.outcome,
            semconv.RUN_EXIT_CODE: item.exit_code,
        }
        return semconv.EVENT_RUN_ENDED, ended | _given({semconv.EXCEPTION_MESSAGE: item.error})
    where = {semconv.LOOP_ITERATION: item.step, semconv.RANK: item.rank}
    return item.name, {name: value for name, value in where.items() if value is not None} | item.attributes


def _table_event(table: Table) -> tuple[str, dict[str, Any], list[list[Cell]]]:
    rows = _first_rows(table)
    optional = {
        semconv.RUN_ATTEMPT: table.attempt,
        semconv.TABLE_RANKS: list(table.ranks),
        semconv.TABLE_CUT_ROWS: table.cut_rows + len(table.rows) - len(rows),
        semconv.TABLE_PART: table.part,
    }
    required = {
        semconv.LOOP_ITERATION: table.step,
        semconv.TABLE_NAME: table.name,
        semconv.TABLE_COLUMNS: list(table.columns),
    }
    return semconv.EVENT_TABLE, required | _given(optional), rows


def _given(optional: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in optional.items() if value}


def _first_rows(table: Table) -> list[list[Cell]]:
    """Return the rows, from the first one on, that are within `_LARGEST_TABLE` bytes."""
    rows: list[list[Cell]] = []
    room = _LARGEST_TABLE
    for row in table.rows:
        room -= sum(len(cell.encode("utf-8", "replace")) if isinstance(cell, str) else 8 for cell in row)
        if room < 0:
            break
        rows.append([_signed(cell) for cell in row])
    return rows


def _signed(value: Any) -> Any:
    """Return the value as OTLP can carry it: its integers are signed and have 64 bits."""
    # The encoder of the SDK raises for larger integers, and the whole row would be refused.
    return float(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value

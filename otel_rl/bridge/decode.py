"""OTLP requests as items of runs, and what of them is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Item, RunInfo, Span, SpanEvent, SpanLink
from otel_rl.step_events import event_of, item_of, run_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.trace.v1 import trace_pb2

SERVICE_NAME = "service.name"
_ERROR_STATUS = 2  # of OTLP's Status.StatusCode
_LONGEST_REASON = 500


class Decoded(NamedTuple):
    """What a request holds.

    Attributes:
        runs: Items by run, in their order.
        rejected: How many records or spans were refused.
        reason: Why the first of them was.
    """

    runs: list[tuple[RunInfo, list[Item]]]
    rejected: int
    reason: str


class _Collected:
    def __init__(self) -> None:
        self.runs: dict[str, tuple[RunInfo, list[Item]]] = {}
        self.rejected = 0
        self.reason = ""

    def run_of(self, resource: Iterable[KeyValue], directory: Path, count: int) -> RunInfo | None:
        """Return the run that a resource names; without one its `count` records are refused."""
        told = attributes(resource)
        if semconv.RUN_ID in told:
            return run_of(told, directory)
        self.reject(f"the resource names no {semconv.RUN_ID}", count)
        return None

    def add(self, run: RunInfo, item: Item) -> None:
        self.runs.setdefault(run.directory, (run, []))[1].append(item)

    def reject(self, reason: str, count: int = 1) -> None:
        self.rejected += count
        self.reason = self.reason or reason[:_LONGEST_REASON]

    @property
    def decoded(self) -> Decoded:
        return Decoded(list(self.runs.values()), self.rejected, self.reason)


def logs(request: ExportLogsServiceRequest, directory: Path) -> Decoded:
    """Return the rows, tables, parameters and events in a request for logs.

    A record without an event name is no event and is refused, as is one whose resource names no run.
    """
    found = _Collected()
    for of_resource in request.resource_logs:
        records = [record for scope in of_resource.scope_logs for record in scope.log_records]
        run = found.run_of(of_resource.resource.attributes, directory, len(records))
        if run is None:
            continue
        for record in records:
            try:
                found.add(run, _item(record))
            except (KeyError, TypeError, ValueError) as error:
                found.reject(f"{record.event_name or 'a log record'}: {type(error).__name__}: {error}")
    return found.decoded


def spans(request: ExportTraceServiceRequest) -> list[Span]:
    """Return all spans in a request for traces; each says which service it is from, as its resource did."""
    found: list[Span] = []
    for of_resource in request.resource_spans:
        service = attributes(of_resource.resource.attributes).get(SERVICE_NAME)
        told = {} if service is None else {SERVICE_NAME: service}
        for span in (_span(span) for scope in of_resource.scope_spans for span in scope.spans):
            found.append(replace(span, attributes={**told, **span.attributes}))
    return found


def traces(request: ExportTraceServiceRequest, directory: Path) -> Decoded:
    """Return the spans in a request for traces; those whose resource names no run are refused."""
    found = _Collected()
    for of_resource in request.resource_spans:
        spans = [span for scope in of_resource.scope_spans for span in scope.spans]
        run = found.run_of(of_resource.resource.attributes, directory, len(spans))
        if run is None:
            continue
        for span in spans:
            found.add(run, _span(span))
    return found.decoded


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Return OTLP's key-value pairs as a mapping of plain values."""
    return {pair.key: plain(pair.value) for pair in pairs}


def plain(value: AnyValue) -> Any:
    """Return an OTLP value as the plain value that it is."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def _item(record: LogRecord) -> Item:
    if not record.event_name:
        raise ValueError("it has no event name")
    time = record.time_unix_nano or record.observed_time_unix_nano
    told = attributes(record.attributes)
    item = item_of(record.event_name, time, told, plain(record.body))
    return item or event_of(record.event_name, time, told, record.trace_id.hex(), record.span_id.hex())


def _span(span: trace_pb2.Span) -> Span:
    failed = span.status.code == _ERROR_STATUS
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_unix_nano=span.start_time_unix_nano,
        end_unix_nano=span.end_time_unix_nano,
        attributes=attributes(span.attributes),
        error=span.status.message if failed else None,
        kind=max(0, span.kind - 1),  # OTLP counts from 1, the API from 0
        events=tuple(SpanEvent(e.name, e.time_unix_nano, attributes(e.attributes)) for e in span.events),
        links=tuple(SpanLink(x.trace_id.hex(), x.span_id.hex(), attributes(x.attributes)) for x in span.links),
    )

"""Decoding of OTLP requests to items of runs, and refusal of invalid records."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from otel_rl import semconv
from otel_rl.export import Item, RunInfo, Span, SpanEvent, SpanLink
from otel_rl.recorder.archive.lines import LARGEST, fit
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.texts import shown
from otel_rl.serve.bridge.step_events import event_of, item_of, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.trace.v1 import trace_pb2

    from otel_rl.export import AttributeValue, Cell

_EVENT_NAME = "event.name"
_ERROR_STATUS = 2  # in OTLP's Status.StatusCode
_LARGEST_ITEM = 16 << 20
_LARGEST_KIND = 4  # in the API's SpanKind
_LONGEST_REASON = 300
_MOST_REASONS = 3
_ONE_TYPE: tuple[set[type], ...] = (set(), {bool}, {int}, {float}, {str})
_MOST_NUMBERS = 5
_NO_RUN = RunInfo("", "", "", "", {})
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Item] = msgspec.msgpack.Decoder(Item).decode
_json = msgspec.json.Encoder(order="deterministic").encode


class Rejected:
    """The refused records of a request: their number, and their positions by reason."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._numbers: dict[str, list[int]] = {}
        self.count = 0

    def add(self, number: int, reason: str) -> None:
        """Add a refused record: its position in the request, counted from 0, and the reason."""
        self.count += 1
        reason = reason[:_LONGEST_REASON]
        if reason in self._numbers or len(self._numbers) < _MOST_REASONS:
            self._numbers.setdefault(reason, []).append(number)

    @property
    def reason(self) -> str:
        """Return the reasons, each with the positions of its first records; empty if nothing was refused."""
        reasons = []
        for reason, numbers in self._numbers.items():
            shown = ", ".join(map(str, numbers[:_MOST_NUMBERS]))
            more = f" and {len(numbers) - _MOST_NUMBERS} more" if len(numbers) > _MOST_NUMBERS else ""
            reasons.append(f"{reason} ({self._what} {shown}{more}, counted from 0)")
        known = sum(map(len, self._numbers.values()))
        return "; ".join([*reasons, *([f"{self.count - known} more for other reasons"] if self.count > known else [])])


class Decoded:
    """The content of a request: items by the directory of their run, in order, and the refused records."""

    def __init__(self, what: str) -> None:
        self._next = 0
        self.runs: dict[str, tuple[RunInfo, list[Item]]] = {}
        self.rejected = Rejected(what)

    def add(self, run: RunInfo | None, reason: str, records: Iterable[_T], to_item: Callable[[_T], Item]) -> None:
        """Decode the valid records of one resource, and refuse the others; without a run, refuse all for the reason."""
        for record in records:
            number, self._next = self._next, self._next + 1
            if run is None:
                self.rejected.add(number, reason)
                continue
            try:
                item = to_item(record)
                encoded = _encode(item)
                _decode(encoded)  # the outbox must be able to read it again
                if len(encoded) > _LARGEST_ITEM:
                    raise ValueError(f"the record has more than {_LARGEST_ITEM} bytes")
                if not fit([item]):
                    raise ValueError(f"an integer is out of range: its time, step and others end at {LARGEST}")
            except (KeyError, TypeError, ArithmeticError, *UNDECODABLE) as error:
                missing = isinstance(error, KeyError)
                self.rejected.add(number, f"attribute {error} is missing" if missing else str(error))
                continue
            self.runs.setdefault(run.directory, (run, []))[1].append(item)


def logs(request: ExportLogsServiceRequest, directory: Path) -> Decoded:
    """Decode the rows, tables, parameters and events in a request for logs.

    Records without an event name and records whose resource names no run are refused.
    """
    decoded = Decoded("log records")
    for of_resource in request.resource_logs:
        records = (record for scope in of_resource.scope_logs for record in scope.log_records)
        decoded.add(*_run_of(of_resource.resource.attributes, directory), records, _item)
    return decoded


def traces(request: ExportTraceServiceRequest, directory: Path | None = None) -> Decoded:
    """Decode the spans in a request for traces.

    Spans whose resource names no run are refused. Without a directory, all are accepted, and are of no run.
    """
    decoded = Decoded("spans")
    for of_resource in request.resource_spans:
        pairs = of_resource.resource.attributes
        resource = flat(attributes(pairs))
        run, reason = (_NO_RUN, "") if directory is None else _run_of(pairs, directory)
        for of_scope in of_resource.scope_spans:
            decoded.add(run, reason, of_scope.spans, partial(_span, resource=resource, scope=of_scope.scope))
    return decoded


def _run_of(resource: Iterable[KeyValue], directory: Path) -> tuple[RunInfo | None, str]:
    """Return the run that a resource names, or the reason why it names none."""
    named = attributes(resource)
    id_ = named.get(semconv.RUN_ID)
    if isinstance(id_, (str, int)) and not isinstance(id_, bool) and str(id_):
        return run_of(flat(named), directory), ""
    problem = "has no attribute" if id_ is None else "has no text in"
    return None, f"the resource {problem} {semconv.RUN_ID}, so the run is unknown: set it to the id of the run"


def has_no_events(request: ExportLogsServiceRequest) -> bool:
    """Return whether a request for logs holds records, but no event."""
    scopes = (scope for of_resource in request.resource_logs for scope in of_resource.scope_logs)
    names = [_name(record) for scope in scopes for record in scope.log_records]
    return bool(names) and not any(names)


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Decode key-value pairs to a mapping of plain values."""
    return {pair.key: plain(pair.value) for pair in pairs}


def plain(value: AnyValue) -> Any:
    """Decode an OTLP value to a plain value."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def flat(values: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Convert plain values to attributes: maps and mixed lists to JSON, bytes to base64; `None` is omitted.

    Source: the OpenTelemetry specification, "Common: AnyValue representation for non-OTLP protocols".
    """
    return {key: _flat(value) for key, value in values.items() if value is not None}


def _flat(value: Any) -> AttributeValue:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list) and {type(item) for item in value} in _ONE_TYPE:
        return value
    return _json(value).decode()


def _cell(value: Any) -> Cell:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(_flat(value))


def _name(record: LogRecord) -> str:
    """Return the name of an event; SDKs and Collectors older than OTLP 1.5 send it as an attribute."""
    if record.event_name:
        return record.event_name
    return next((pair.value.string_value for pair in record.attributes if pair.key == _EVENT_NAME), "")


def _item(record: LogRecord) -> Item:
    name = _name(record)
    if not name:
        raise ValueError("the record has no event name, so it is not an event")
    # In OTLP, a time of 0 is unknown, and the time of observation counts.
    time = record.time_unix_nano or record.observed_time_unix_nano
    named = attributes(record.attributes)
    named.pop(_EVENT_NAME, None)
    body = plain(record.body)
    if name == semconv.EVENT_TABLE:
        if not isinstance(body, list) or not all(isinstance(row, list) for row in body):
            raise ValueError(f"{name}: the body is not a list of rows")
        body = [[_cell(cell) for cell in row] for row in body]
    if name == semconv.EVENT_RUN_CONFIG and isinstance(values := named.get(semconv.RUN_CONFIG_VALUES), dict):
        named[semconv.RUN_CONFIG_VALUES] = {key: _cell(value) for key, value in values.items()}
    item = item_of(name, time, named, body)
    if item is not None:
        return item
    ids = (record.trace_id.hex(), record.span_id.hex()) if _are_ids(record.trace_id, record.span_id) else ("", "")
    return event_of(name, time, flat(named), *ids)


def _are_ids(trace_id: bytes, span_id: bytes) -> bool:
    return len(trace_id) == 16 and len(span_id) == 8 and any(trace_id) and any(span_id)


def _span(span: trace_pb2.Span, resource: dict[str, AttributeValue], scope: InstrumentationScope) -> Span:
    if not _are_ids(span.trace_id, span.span_id):
        raise ValueError(f"span {shown(span.name)}: needs a trace id of 16 bytes and a span id of 8, not all zero")
    links = [link for link in span.links if _are_ids(link.trace_id, link.span_id)]
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if len(span.parent_span_id) == 8 and any(span.parent_span_id) else "",
        start_unix_nano=span.start_time_unix_nano,
        end_unix_nano=span.end_time_unix_nano,
        attributes=flat(attributes(span.attributes)),
        error=span.status.message if span.status.code == _ERROR_STATUS else None,
        kind=min(max(0, span.kind - 1), _LARGEST_KIND),  # numbered from 1 in OTLP, from 0 in the API
        events=tuple(SpanEvent(e.name, e.time_unix_nano, flat(attributes(e.attributes))) for e in span.events),
        links=tuple(SpanLink(x.trace_id.hex(), x.span_id.hex(), flat(attributes(x.attributes))) for x in links),
        scope=(scope.name, scope.version),
        resource=resource,
    )

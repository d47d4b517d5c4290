"""The seeds of the targets: data of the real writers."""

from __future__ import annotations

import gzip
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import otel_rl
from otel_rl.export import Machine, Recorded
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Record
from otel_rl_exporters.head import events
from tests.serve.bridge.bridges import any_value, pairs, step_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

_TEXTS = ("", "run", "x" * 300, "../..", "a/b", "\0", "\U0001f600", "-1", "NaN")
_VALUES = (
    *(AnyValue(string_value=text) for text in _TEXTS),
    *(AnyValue(int_value=number) for number in (0, -1, 2**63 - 1, -(2**63))),
    *(AnyValue(double_value=number) for number in (-0.0, 1e308, float("nan"), float("inf"))),
    AnyValue(bool_value=True),
    AnyValue(bytes_value=b"\xff\0"),
    AnyValue(),
    any_value([[], {"a": [1, {"b": 0.5}]}]),
    any_value({text: text for text in _TEXTS}),
)
"""Values of every kind, for places where most of them make no sense."""
_OF_RESOURCES = ("rl.run.id", "rl.run.project", "rl.run.name", "service.name")
_OF_EVENTS = {
    "rl.step.metrics": ("rl.loop.iteration", "rl.step.values", "rl.run.attempt", "rl.step.missing_ranks"),
    "rl.table": ("rl.table.name", "rl.table.columns", "rl.table.ranks"),
    "rl.run.config": ("rl.run.config.values",),
    "rl.checkpoint": ("rl.loop.iteration", "rank"),
    "rl.journal.logged": ("rl.journal.name", "rl.journal.index"),
    "": (),
}
_STEPS = 3


def recorded(place: Path) -> otel_rl.Run:
    """Record a short run with records of nearly every kind; no agent has read it."""
    how = {"exporters": ["jsonl"], "agent": "off", "quiet": True, "hardware": False, "content": True}
    run = otel_rl.init(dir=place, id="run", project="p", **how)
    run.params({"lr": 1e-6, "model": {"name": "tiny"}})
    for number in range(_STEPS):
        with run.step(number):
            with run.phase("generate", tokens=5), run.trajectory(policy_version=number) as trajectory:
                with trajectory.part("tool", name="search"):
                    pass
                trajectory.message("assistant", "a", tokens=[1, 2], logprobs=[-0.5, -1.5], mask=[True, False])
                trajectory.generated(7)
                trajectory.rewarded(0.5)
            with run.phase("train"):
                run.trained([trajectory.ticket()], policy_version=number, advantages=[0.5], logprobs=[[-0.5, -1.5]])
                run.log({"loss": 1.0 / (number + 1), "nan": float("nan"), "reward": [0.5, 1.0]}, weight=2)
            run.table("samples", [{"prompt": "a", "reward": 0.5}])
            run.event("rl.checkpoint", path="x")
    run.finish(0)
    return run


def finished(place: Path) -> Path:
    """Record a short run, and have an agent deliver it; return its directory."""
    run = recorded(place)
    run_agent(run.dir, once=True)
    return run.dir


@cache
def all_records() -> list[Record]:
    """Return the records of a short run."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        run = recorded(Path(place))
        (journal,) = directories.at(run.dir).journals.iterdir()
        reader: Reader[Record] = Reader(journal, AnyRecord)
        found = reader.read(final=True)
        reader.close()
    return found


def records() -> Any:
    """Return the records of a short run as the request of an agent to its head."""
    raw = tuple(msgspec.msgpack.encode(record) for record in all_records())
    items = [Recorded("rank0.attempt0.0123456789abcdef", 0, raw), Machine(3, 10**18, {"system.cpu.utilization": 0.5})]
    resource, scope = Resource({"rl.run.id": "run", "host.name": "other"}), InstrumentationScope("otel_rl")
    return encode_logs([ReadableLogRecord(event, resource, scope) for item in items for event in events(item)])


def log_events() -> Any:
    """Return steps as any SDK sends them."""
    return step_metrics("run", {n: {"loss": 0.5, "reward/mean": float(n)} for n in range(_STEPS)})


def trace() -> ExportTraceServiceRequest:
    """Return a span of an inference server."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(pairs({"service.name": "vllm", "rl.run.id": "run"}))
    span = of_resource.scope_spans.add().spans.add(name="llm_request", trace_id=b"t" * 16, span_id=b"s" * 8)
    span.attributes.extend(pairs({"gen_ai.usage.output_tokens": 5, "list": [1, 2.5, "x"], "map": {"a": True}}))
    return request


def metrics() -> ExportMetricsServiceRequest:
    """Return a counter of another program."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="requests")
    metric.sum.data_points.add(as_int=5, time_unix_nano=10**18)
    return request


def odd_logs() -> Iterator[ExportLogsServiceRequest]:
    """Yield requests that have each value at each place of a resource and of each event."""
    for n, value in enumerate(_VALUES):
        request = log_events()
        for event, keys in _OF_EVENTS.items():
            record = request.resource_logs[0].scope_logs[0].log_records.add(event_name=event, body=value)
            record.time_unix_nano = 2**64 - 1 if n % 2 else 0
            record.attributes.extend(pairs({"rl.loop.iteration": 5, "rl.table.name": "t", "rl.table.columns": ["a"]}))
            record.attributes.extend(KeyValue(key=key, value=value) for key in keys)
        yield request
        request = log_events()
        for name in _OF_RESOURCES:
            request.MergeFrom(log_events())
            request.resource_logs[-1].resource.attributes.add(key=name, value=value)
        yield request


def odd_spans() -> Iterator[ExportTraceServiceRequest]:
    """Yield requests that have each value at each place of a span, and ids of any length."""
    for n, value in enumerate(_VALUES):
        request = trace()
        of_resource = request.resource_spans[0]
        of_resource.resource.attributes.extend(KeyValue(key=name, value=value) for name in _OF_RESOURCES[n % 5 :])
        span = of_resource.scope_spans[0].spans.add(name="odd", kind=n % 9)  # type: ignore[arg-type]
        span.trace_id, span.span_id, span.parent_span_id = (b"i" * (size + n % 2) for size in (16, 8, n))
        span.start_time_unix_nano = 2**64 - 1
        for one in (span, span.events.add(name="e"), span.links.add(trace_id=b"l" * n, span_id=b"l" * 8)):
            one.attributes.add(key="a", value=value)
        yield request


def count(signal: str, request: Any) -> int:
    """Return the number of log records or spans in a request."""
    if signal == "logs":
        scopes = (scope for one in request.resource_logs for scope in one.scope_logs)
        return sum(len(scope.log_records) for scope in scopes)
    return sum(len(scope.spans) for one in request.resource_spans for scope in one.scope_spans)


def zstd(body: bytes) -> bytes:
    """Compress with zstd."""
    if sys.version_info >= (3, 14):
        from compression import zstd as library
    else:
        from backports import zstd as library
    return bytes(library.compress(body))


def compressed(name: str, body: bytes) -> bytes:
    """Compress with a content encoding."""
    return {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd}[name](body)

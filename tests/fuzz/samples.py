"""The seeds of the targets: data of the real writers."""

from __future__ import annotations

import gzip
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import otel_rl
from otel_rl.agent.process import run_agent
from otel_rl.export import Machine, Recorded
from otel_rl.journal.reader import Reader
from otel_rl.journal.records import AnyRecord, Record
from otel_rl.setup import directory as directories
from otel_rl_exporters.head import events
from tests.bridge.bridges import pairs, step_metrics

NAMES = (
    "rl.run.id",
    "rl.run.project",
    "rl.run.name",
    "service.name",
    "host.name",
    "rl.journal.index",
    "rl.machine.metrics",
)
FIELDS = (
    "resourceLogs",
    "scopeLogs",
    "logRecords",
    "attributes",
    "key",
    "value",
    "stringValue",
    "intValue",
    "doubleValue",
)
FIELDS += ("kvlistValue", "arrayValue", "values", "traceId", "spanId", "timeUnixNano", "eventName", "body", "resource")
_STEPS = 3


def recorded(place: Path) -> otel_rl.Run:
    """Record a short run with records of nearly every kind; no agent has read it."""
    run = otel_rl.init(dir=place, id="run", project="p", exporters=["jsonl"], agent="off", quiet=True, hardware=False)
    run.params({"lr": 1e-6, "model": {"name": "tiny"}})
    for number in range(_STEPS):
        with run.step(number):
            with run.phase("generate", tokens=5), run.trajectory(policy_version=number) as trajectory:
                with trajectory.part("tool", name="search"):
                    pass
                trajectory.generated(7)
                trajectory.rewarded(0.5)
            with run.phase("train"):
                run.trained([trajectory.ticket()], policy_version=number)
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
        reader: Reader[Record] = Reader(journal, AnyRecord)  # type: ignore[arg-type] # a union of types
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


def count(signal: str, request: Any) -> int:
    """Return the number of log records or spans in a request."""
    if signal == "logs":
        scopes = (scope for one in request.resource_logs for scope in one.scope_logs)
        return sum(len(scope.log_records) for scope in scopes)
    return sum(len(scope.spans) for one in request.resource_spans for scope in one.scope_spans)


def messages(message: Any) -> int:
    """Return the number of messages in a message, at any depth."""
    found = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = value if field.is_repeated else [value]
            found += len(inner) + sum(map(messages, inner))
    return found


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

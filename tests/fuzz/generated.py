"""OTLP requests with attributes, values and ids that make no sense, from a random generator."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.bridge.bridges import pairs
from tests.bridge.test_bridge import as_json

if TYPE_CHECKING:
    import random

NAMES = ("rl.run.id", "rl.run.project", "rl.run.name", "service.name")
KEYS = ("rl.loop.iteration", "rl.step.values", "rl.run.attempt", "rl.table.name", "rl.table.columns", "rl.table.ranks")
EVENTS = ("rl.step.metrics", "rl.table", "rl.run.config", "rl.checkpoint", "", "rl.journal.logged", "\0")
TEXTS = ("", "run", "x" * 300, "../..", "/", "a/b", "\0", "ü" * 200, "\U0001f600", "1", "-1", "NaN")


def value(rng: random.Random, depth: int = 0) -> AnyValue:
    """Return a value of any kind."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return AnyValue(string_value=rng.choice(TEXTS))
    if kind == 1:
        return AnyValue(int_value=rng.choice((0, 1, -1, 2**63 - 1, -(2**63))))
    if kind == 2:
        return AnyValue(double_value=rng.choice((0.0, -0.0, 1e308, float("nan"), float("inf"), 0.5)))
    if kind == 3:
        return AnyValue(bool_value=rng.random() < 0.5)
    if kind == 4:
        return AnyValue(bytes_value=rng.randbytes(rng.randrange(20)))
    if kind == 5:
        return AnyValue()
    if kind == 6:
        return AnyValue(array_value={"values": [value(rng, depth + 1) for _ in range(rng.randrange(4))]})
    return AnyValue(kvlist_value={"values": attributes(rng, TEXTS, depth + 1)})


def attributes(rng: random.Random, keys: tuple[str, ...], depth: int = 0) -> list[KeyValue]:
    return [KeyValue(key=rng.choice(keys), value=value(rng, depth)) for _ in range(rng.randrange(5))]


def resource(rng: random.Random) -> list[KeyValue]:
    named = pairs({"rl.run.id": f"run-{rng.randrange(3)}", "rl.run.project": "p"})
    return attributes(rng, NAMES) if rng.random() < 0.1 else [*named, *attributes(rng, TEXTS)]


def logs(rng: random.Random) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    for _ in range(rng.randrange(3)):
        of_resource = request.resource_logs.add()
        of_resource.resource.attributes.extend(resource(rng))
        for _ in range(rng.randrange(4)):
            record = of_resource.scope_logs.add().log_records.add(event_name=rng.choice(EVENTS))
            record.time_unix_nano = rng.choice((0, 1, 2**64 - 1))
            record.trace_id = rng.randbytes(rng.choice((0, 3, 16)))
            record.span_id = rng.randbytes(rng.choice((0, 8, 9)))
            record.body.CopyFrom(value(rng))
            record.attributes.extend(attributes(rng, KEYS))
            if rng.random() < 0.5:
                record.attributes.extend(pairs({"rl.loop.iteration": 5, "rl.table.name": "t", "rl.table.columns": []}))
    return request


def spans(rng: random.Random) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(resource(rng))
    for _ in range(rng.randrange(4)):
        span = of_resource.scope_spans.add().spans.add(name=rng.choice(TEXTS), kind=rng.randrange(9))  # type: ignore[arg-type]
        span.trace_id, span.span_id = rng.randbytes(rng.choice((0, 16, 16))), rng.randbytes(rng.choice((0, 8, 8)))
        span.parent_span_id = rng.randbytes(rng.randrange(10))
        span.start_time_unix_nano = rng.choice((0, 2**64 - 1))
        span.attributes.extend(attributes(rng, TEXTS))
        span.events.add(name="e").attributes.extend(attributes(rng, TEXTS))
        span.links.add(trace_id=rng.randbytes(rng.randrange(20))).attributes.extend(attributes(rng, TEXTS))
    return request


def scrambled(rng: random.Random, body: bytes) -> bytes:
    """Return the body with some of its bytes changed, cut or repeated."""
    found = bytearray(body)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(found) + 1)
        found[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(found[: rng.randrange(len(found) + 1)] if rng.random() < 0.3 else found)


def mistyped(rng: random.Random, told: Any) -> Any:
    """Return JSON in which some values are of another type."""
    if rng.random() < 0.1:
        return rng.choice((None, [], {}, "x", 5, -1, 1.5, True, 10**30, [[[]]], {"a": {}}))
    if isinstance(told, dict):
        return {key: mistyped(rng, item) for key, item in told.items()}
    return [mistyped(rng, item) for item in told] if isinstance(told, list) else told


def request(rng: random.Random) -> tuple[str, bytes, dict[str, str]]:
    """Return path, body and headers of a request."""
    path = rng.choice(("/v1/logs", "/v1/logs", "/v1/traces", "/v1/traces/", "/v1/metrics", "/v1/logs?x=1", "/", "//v1"))
    message = spans(rng) if "traces" in path else logs(rng) if "logs" in path else ExportMetricsServiceRequest()
    kind = "application/x-protobuf"
    body = message.SerializeToString()
    if rng.random() < 0.2:
        kind, body = "application/json", json.dumps(mistyped(rng, json.loads(as_json({1: 0.5})))).encode()
    elif rng.random() < 0.05:
        kind, body = "application/json", rng.choice((b"[" * 100_000, b'{"resourceLogs": 1e999}', b"9" * 9000, b"\xff"))
    if rng.random() < 0.3:
        body = scrambled(rng, body)
    headers = {
        "Content-Type": kind if rng.random() < 0.95 else rng.choice(("", "text/plain", "x" * 5000, "application/*"))
    }
    if rng.random() < 0.3:
        headers["Content-Encoding"] = rng.choice(("gzip", "GZIP", "deflate", "br", "gzip, gzip", "\t"))
        body = gzip.compress(body) if rng.random() < 0.7 else body
    return path, body, headers

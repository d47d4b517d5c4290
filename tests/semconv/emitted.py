"""Requests of OTLP in JSON, and what in them the registry does not declare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from otel_rl import semconv
from otel_rl.semconv import registry

_TYPES = {"stringValue": "string", "intValue": "int", "doubleValue": "double", "boolValue": "boolean"}
_INTERNAL = 1
_OPERATIONS = {"invoke_agent": "rl.trajectory", "chat": "rl.trajectory.model", "execute_tool": "rl.trajectory.tool"}
_OF_AN_EXCEPTION = {"exception.type", "exception.message", "exception.stacktrace"}


def requests(printed: str) -> list[dict[str, Any]]:
    """Return the requests that `OTEL_*_EXPORTER=otlp/stdout` printed."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith('{"resource')]


def names(sent: list[dict[str, Any]]) -> set[str]:
    """Return the names of all spans, events and metrics."""
    return {_name(one) for request in sent for _, _, scope in _scopes(request) for one in _records(scope)}


def faults(sent: list[dict[str, Any]]) -> set[str]:
    """Return a line for everything that the registry does not declare so."""
    return {fault for request in sent for fault in _of_request(request)}


def _of_request(request: dict[str, Any]) -> Iterator[str]:
    for kind, resource, scope in _scopes(request):
        if scope["scope"]["name"] != "otel_rl":
            continue  # a library's spans have its names
        yield from _attributes("resource", resource, _declared("attributes.rl.resource"))
        if scope.get("schemaUrl") != semconv.SCHEMA_URL:
            yield f"{kind}: schema URL {scope.get('schemaUrl')}"
        for record in _records(scope):
            yield from _OF[kind](record)


def _scopes(request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for kind in ("Spans", "Logs", "Metrics"):
        for one in request.get(f"resource{kind}", ()):
            for scope in one[f"scope{kind}"]:
                yield kind, one["resource"], scope


def _records(scope: dict[str, Any]) -> list[dict[str, Any]]:
    return [*scope.get("spans", ()), *scope.get("logRecords", ()), *scope.get("metrics", ())]


def _name(record: dict[str, Any]) -> str:
    name = str(record.get("name") or record["eventName"])
    return _OPERATIONS.get(name.partition(" ")[0], name)


def _span(span: dict[str, Any]) -> Iterator[str]:
    # a phase that is not a stage of genai#88 has its own name, and the attributes of any phase
    own = f"span.{_name(span)}"
    declared = _declared(own if own in _groups() else "span.rl.train")
    yield from _attributes(f"span {span['name']}", span, declared)
    if own not in _groups() and not any(pair["key"] == semconv.PHASE for pair in span["attributes"]):
        yield f"span {span['name']}"
    if span["kind"] != _INTERNAL:
        yield f"span {span['name']}: kind {span['kind']}"
    for event in span.get("events", ()):
        yield from _attributes(f"span event {event['name']}", event, _OF_AN_EXCEPTION)


def _event(event: dict[str, Any]) -> Iterator[str]:
    group = f"event.{event['eventName']}"
    if group not in _groups():
        yield group
    else:
        yield from _attributes(group, event, _declared(group))


def _metric(metric: dict[str, Any]) -> Iterator[str]:
    group = f"metric.{metric['name']}"
    if group not in _groups():
        yield group
        return
    (data,) = (metric[kind] for kind in ("sum", "gauge", "histogram", "exponentialHistogram") if kind in metric)
    for point in data["dataPoints"]:
        yield from _attributes(group, point, _declared(group))


_OF = {"Spans": _span, "Logs": _event, "Metrics": _metric}


def _attributes(where: str, holder: dict[str, Any], declared: set[str]) -> Iterator[str]:
    for pair in holder.get("attributes", ()):
        name, value = pair["key"], pair["value"]
        if name not in declared:
            yield f"{where}: {name}"
        elif (known := registry.attributes().get(name)) and not _fits(value, known.value_type):
            yield f"{where}: {name} is not a {known.value_type}: {value}"


def _fits(value: dict[str, Any], declared: str) -> bool:
    if declared == "any":
        return not value.keys().isdisjoint(("kvlistValue", "stringValue"))
    if declared.endswith("[]"):
        return all(_fits(one, declared[:-2]) for one in value["arrayValue"].get("values", ()))
    return [_TYPES.get(kind) for kind in value] == [declared]


def _groups() -> dict[str, registry.Group]:
    return {group.id: group for group in registry.groups()}


def _declared(group: str) -> set[str]:
    return set(_groups()[group].attribute_names)

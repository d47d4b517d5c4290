"""A search in the names of a run: its findings, metrics, spans with their phases, and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from otel_rl.look.insight import facts_of
from otel_rl.look.insight.facts import Finding
from otel_rl.look.reader.result import lines_of

if TYPE_CHECKING:
    from otel_rl.look.reader.runs import RunReader

One = TypeVar("One", bound=msgspec.Struct)


class MetricMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of steps: in which it is, its range and its last value; of a NaN, null."""

    name: str
    steps: int
    first_step: int
    last_step: int
    lowest: float
    highest: float
    last: float


class SpanMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The spans with a name: their phase, if they are of one, how many, their whole and their longest time."""

    name: str
    phase: str | None
    number: int
    seconds: float
    longest_seconds: float


class EventMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The events with a name: how many, and the last step that has one."""

    name: str
    number: int
    last_step: int | None


class Matches(msgspec.Struct, frozen=True, kw_only=True):
    """The matches: findings in the order of all screens, the others in the order of their names."""

    findings: tuple[Finding, ...]
    metrics: tuple[MetricMatch, ...]
    spans: tuple[SpanMatch, ...]
    events: tuple[EventMatch, ...]


_METRICS = """SELECT name, count(DISTINCT step) AS steps, min(step) AS first_step, max(step) AS last_step,
    min(value) FILTER (isfinite(value)) AS lowest, max(value) FILTER (isfinite(value)) AS highest,
    arg_max(value, step) AS last FROM rows GROUP BY name ORDER BY name"""
_SPANS = """SELECT name, phase, count(*) AS number, sum(duration_ns)::DOUBLE / 1e9 AS seconds,
    max(duration_ns)::DOUBLE / 1e9 AS longest_seconds FROM spans GROUP BY name, phase ORDER BY name, phase"""
_EVENTS = "SELECT name, count(*) AS number, max(step) AS last_step FROM events GROUP BY name ORDER BY name"


def find(run: RunReader, text: str) -> Matches:
    """Return what has a text in its name, or in the sentence of a finding; case does not matter."""
    wanted = text.lower()
    findings = [finding for finding in facts_of(run).findings if wanted in f"{finding.kind} {finding.sentence}".lower()]
    return Matches(
        findings=tuple(findings),
        metrics=tuple(_named(run, _METRICS, MetricMatch, wanted)),
        spans=tuple(_named(run, _SPANS, SpanMatch, wanted)),
        events=tuple(_named(run, _EVENTS, EventMatch, wanted)),
    )


def _named(run: RunReader, query: str, kind: type[One], wanted: str) -> list[One]:
    result = run.sql(query)
    every = (dict(zip(result.columns, line, strict=True)) for line in lines_of(result))
    return [
        kind(**fields)
        for fields in every
        if any(wanted in str(fields.get(name) or "").lower() for name in ("name", "phase"))
    ]

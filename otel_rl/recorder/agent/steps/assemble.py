"""Builds spans, events and processes from the records of their beginnings and ends."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Event, Process, Span, SpanEvent, SpanLink
from otel_rl.recorder.agent.steps import trajectories
from otel_rl.recorder.agent.steps.state import rank_and_role
from otel_rl.recorder.devices.host_memory import parse_snapshot
from otel_rl.recorder.journal.ids import packed_step_ids
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.contribution import Whole
    from otel_rl.recorder.agent.steps.state import Journal, OpenPhase, Timed
    from otel_rl.recorder.journal.ids import SpanIds
    from otel_rl.recorder.journal.records import (
        DeviceTimed,
        Happened,
        SpanEnded,
        SpanStarted,
        Started,
        StepEnded,
    )


def span(
    run_id: str,
    journal: Journal,
    begun: SpanStarted,
    ended: SpanEnded,
    phase: OpenPhase | None,
    own_ns: int | None = None,
) -> Span:
    """Return the span of a phase, a part of one, or of a third party."""
    process = journal.started
    trace_id, parent_id = _in_attempt(run_id, journal, begun)
    attributes: dict[str, AttributeValue] = {**rank_and_role(process), semconv.RUN_ATTEMPT: process.attempt}
    if begun.step is not None:
        attributes[semconv.LOOP_ITERATION] = begun.step
    name = ended.name or begun.name
    if begun.kind is None:
        attributes[semconv.PHASE] = name
        name = f"rl.{registry.stages()[name]}" if name in registry.stages() else name
        if begun.part:
            attributes[semconv.PHASE_PART] = begun.part
            name = f"{name}.{begun.part}"
    for key, raw in (
        (semconv.PHASE_PROCESS_MEMORY_START, begun.memory),
        (semconv.PHASE_PROCESS_MEMORY_END, ended.memory),
    ):
        memory = parse_snapshot(raw, process.page_size)
        if memory is not None:
            attributes[key] = memory.resident
    if begun.devices and ended.devices and phase is not None:
        attributes[semconv.PHASE_DEVICE_MEMORY_START] = max(d.allocated for d in begun.devices)
        attributes[semconv.PHASE_DEVICE_MEMORY_END] = max(d.allocated for d in ended.devices)
        attributes[semconv.PHASE_DEVICE_MEMORY_PEAK] = max(peak for peak, _ in phase.peaks.values())
    if ended.error is not None and ended.error[0]:
        attributes[semconv.ERROR_TYPE] = ended.error[0]
    return Span(
        name=name,
        trace_id=trace_id.hex(),
        span_id=f"{begun.span_id:016x}",
        parent_id=f"{parent_id:016x}" if parent_id else "",
        start_unix_nano=begun.time,
        end_unix_nano=max(ended.time, begun.time),
        attributes=attributes | (ended.attributes or {}),
        error=None if ended.error is None else error_text(ended.error),
        kind=begun.kind or 0,
        events=tuple(SpanEvent(*moment) for moment in ended.events or ()),
        links=tuple(links(ended)),
        scope=begun.scope or ("", ""),
        ok=ended.ok,
        own_ns=own_ns,
    )


def in_attempt(span: Span, attempt: int) -> Span:
    """Return a span whose process belongs to another attempt."""
    return replace(span, attributes=span.attributes | {semconv.RUN_ATTEMPT: attempt})


def _in_attempt(run_id: str, journal: Journal, begun: SpanStarted) -> tuple[bytes, int]:
    """Return the trace id and the parent id of a span, in the trace of its step in the attempt of its process.

    Both are hashes of the attempt that the process recorded, which may be another one: see `attempts`.
    """
    attempt = journal.started.attempt
    if begun.step is None or attempt == journal.recorded_attempt:
        return begun.trace_id, begun.parent_id
    recorded_trace, recorded_root = packed_step_ids(run_id, journal.recorded_attempt, begun.step)
    if begun.trace_id != recorded_trace:
        return begun.trace_id, begun.parent_id
    trace_id, root = packed_step_ids(run_id, attempt, begun.step)
    return trace_id, root if begun.parent_id == recorded_root else begun.parent_id


def links(ended: SpanEnded | StepEnded) -> list[SpanLink]:
    """Return links as they were recorded."""
    pairs = zip_longest(ended.links or (), (ended.link_attributes or ())[: len(ended.links or ())], fillvalue=None)
    return [
        SpanLink(link[0].hex(), f"{link[1]:016x}", attributes or {}) for link, attributes in pairs if link is not None
    ]


def on_device(process: Started, timed: Timed, measured: DeviceTimed) -> Span:
    """Return a phase with its duration on the device, for instruments only; its times have no meaning."""
    attributes = rank_and_role(process) | {semconv.CLOCK: "device", semconv.PHASE: timed.phase}
    attributes |= {semconv.PHASE_PART: timed.part} if timed.part else {}
    return Span(timed.phase, "", "", "", 0, round(measured.seconds * 1e9), {**attributes})


def timed(span: Span, measured: DeviceTimed) -> Span:
    """Return a span with its time on the device."""
    attributes: dict[str, AttributeValue] = {
        semconv.PHASE_DEVICE_DURATION: measured.seconds,
        semconv.PHASE_DEVICE_OFFSET: measured.offset,
    }
    return replace(span, attributes=span.attributes | attributes)


def failed(journal: Journal, error: tuple[str, str]) -> Event:
    """Return the event of a process that ended with an exception or by a signal."""
    attributes: dict[str, AttributeValue] = {
        semconv.PROCESS_OUTCOME: journal.outcome,
        semconv.ERROR_TYPE: error[0],
        semconv.EXCEPTION_MESSAGE: error[1],
    }
    where = {semconv.PHASE: journal.ended_phase, semconv.PROCESS_CAUSE: journal.cause}
    attributes |= {name: value for name, value in where.items() if value}
    return Event(semconv.EVENT_PROCESS_FAILED, journal.ended_at, attributes, journal.ended_step, journal.started.rank)


def identified(journal: Journal, *events: Event) -> list[Event]:
    """Return events of a process with the attributes that identify it."""
    return [replace(event, attributes=who(journal.started) | event.attributes) for event in events]


def who(process: Started) -> dict[str, AttributeValue]:
    """Return the attributes that, with the rank, identify a process."""
    attributes: dict[str, AttributeValue] = {semconv.HOST_NAME: process.host}
    return attributes | ({semconv.ROLE: process.role} if process.role else {})


def root(ids: SpanIds, attempt: int, number: int, step: Whole) -> Span:
    """Return the root span of a step: from its first rank's start to its last one's end."""
    attributes: dict[str, AttributeValue] = {semconv.LOOP_ITERATION: number, semconv.RUN_ATTEMPT: attempt}
    attributes |= trajectories.of_step(step.consumed)
    spans: list[SpanLink] = []
    error: str | None = None
    for one in step.by.values():
        attributes |= one.attributes
        spans += one.links
        error = one.error or error
    return Span(
        name=semconv.SPAN_LOOP,
        trace_id=f"{ids.trace_id:032x}",
        span_id=f"{ids.span_id:016x}",
        parent_id="",
        start_unix_nano=min(step.begun.values()),
        end_unix_nano=max(step.ended.values()),
        attributes=attributes,
        error=error,
        links=(*spans, *trajectories.links(step.consumed)),
        ok=error is None and any(one.ok for one in step.by.values()),
    )


def event(rank: int, record: Happened) -> Event:
    """Return an event as it was recorded, with the rank and the span in which it was recorded."""
    return Event(
        record.name,
        record.time,
        record.attributes,
        record.step,
        rank,
        record.trace_id.hex(),
        f"{record.span_id:016x}" if record.span_id else "",
    )


def error_text(error: tuple[str, str]) -> str:
    """Return the type and the message of an exception in one line; either may be empty."""
    return ": ".join(part for part in error if part)


def changed_processes(journals: Iterable[Journal]) -> list[Process]:
    """Return the processes of which more is known than at the last call, also of an earlier agent."""
    processes: list[Process] = []
    for journal in journals:
        end = (journal.ended_at, journal.order, journal.exit_code) if journal.over else (-1, 0, 0)
        known = (journal.started.attempt, len(journal.devices), *end)
        if known != journal.exported:
            journal.exported = known
            processes.append(_process_item(journal))
    return processes


def _process_item(journal: Journal) -> Process:
    started = journal.started
    running = Process(
        attempt=started.attempt,
        role=started.role,
        rank=started.rank,
        world_size=started.world_size,
        host=started.host,
        pid=started.pid,
        started_unix_nano=started.time,
        devices=tuple(journal.devices[index].name for index in sorted(journal.devices)),
    )
    if not journal.over:
        return running
    return replace(
        running,
        ended_unix_nano=journal.ended_at,
        outcome=journal.outcome,
        error=journal.error,
        exit_code=journal.exit_code,
        cause=journal.cause,
        ended_step=journal.ended_step,
        ended_phase=journal.ended_phase,
        down_order=journal.order,
    )

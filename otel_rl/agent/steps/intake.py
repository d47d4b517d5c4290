"""Applies the records of running processes to the state, and makes the items that need not wait for their step."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.analysis.goodput import ROLLOUTS
from otel_rl.agent.steps import assemble, boundaries
from otel_rl.agent.steps.state import Journal, OpenStep, Timed, is_remote
from otel_rl.export import Event, Params
from otel_rl.journal.records import (
    Configured,
    Consumed,
    DeviceSeen,
    DeviceTimed,
    Happened,
    Logged,
    Observed,
    OnDevice,
    Record,
    Refusals,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
    Tabled,
)
from otel_rl.stats.pool import Pool

if TYPE_CHECKING:
    from otel_rl.agent.analysis.goodput import Goodput
    from otel_rl.agent.steps.forensics import Forensics
    from otel_rl.agent.steps.reduce import Reduced
    from otel_rl.agent.steps.state import State

_NS = 1_000_000_000
_End = TypeVar("_End", SpanEnded, StepEnded)


class Intake:
    """Applies the records of processes to the state, one after the other.

    Attributes:
        heard: When open steps were last heard of from a process that is not inside them, by attempt and step.
        now: The time on the agent's clock, in nanoseconds.
    """

    def __init__(self, state: State, forensics: Forensics, goodput: Goodput) -> None:
        self._state, self._forensics, self._goodput = state, forensics, goodput
        self.heard: dict[tuple[int, int], int] = {}
        self.now = 0

    def see(self, now: int) -> int:
        """Move the clock forward to `now`, never back; return the time."""
        self.now = max(self.now, now)
        return self.now

    def take(self, name: str, journal: Journal, record: Record, made: Reduced) -> None:
        """Apply a record of the journal of this name; add to `made` the items that need not wait for their step."""
        if isinstance(record, SpanStarted | SpanEnded | StepStarted | StepEnded):
            boundaries.cross(name, journal, record, self._forensics.ledger)
        match record:
            case Logged() | Observed() | Tabled():
                self._log(name, journal, record, made)
            case SpanStarted():
                journal.spans[record.span_id] = record
                if record.kind is None or is_rollout(record):
                    name_and_part = (record.name, record.part)
                    self._goodput.enter(name, journal.started, record.span_id, name_and_part, record.time)
                if is_rollout(record):
                    made.rollouts.append(record.trace_id.hex())
                if record.kind is None:
                    journal.phases[record.span_id] = boundaries.open_phase(record)
            case SpanEnded():
                if (begun := journal.spans.pop(record.span_id, None)) is not None:
                    self.end_span(name, journal, begun, record, made)
            case StepStarted():
                self._goodput.begin_step(name, journal.started, record.time, first=not journal.uses_steps)
                journal.highest = {}
                journal.failed_in = -1
                journal.step = journal.moved_on_to = record.step
                journal.takes_part = journal.uses_steps = True
                step = self.step(journal, record.step)
                step.begun[name] = record.time
            case StepEnded():
                made.items += identified(journal, *self._forensics.balance(name, journal, record.step, record.time))
                self.end_step(name, journal, record)
            case _:
                self._take_other(name, journal, record, made)

    def _take_other(self, name: str, journal: Journal, record: Record, made: Reduced) -> None:
        match record:
            case Configured():
                made.items.append(Params(record.time, record.values))
            case Happened():
                event = assemble.event(journal.started.rank, record)
                made.items += identified(journal, self._forensics.complete(name, event))
            case Refusals():
                journal.refusals = record.counts
            case DeviceSeen():
                journal.devices[record.index] = record
            case Consumed():
                journal.takes_part = True
                self.step(journal, record.step).consumed.append(record)
            case OnDevice():
                _await(journal, record.step, record.count)
            case DeviceTimed():
                self._time_on_device(name, journal, record, made)

    def step(self, journal: Journal, number: int) -> OpenStep:
        """Return a step of the attempt of a process; it is opened if it is not open."""
        return self._state.steps.setdefault(journal.started.attempt, {}).setdefault(number, OpenStep())

    def is_closed(self, journal: Journal, number: int) -> bool:
        """Return whether a step of the attempt of a process has closed."""
        return number <= self._state.closed.get(journal.started.attempt, -1)

    def _log(self, name: str, journal: Journal, record: Logged | Observed | Tabled, made: Reduced) -> None:
        journal.takes_part = True
        step = self.step(journal, record.step)
        if name not in step.reported:
            step.reported.append(name)
        match record:
            case Logged():
                made.items += identified(journal, *self._forensics.nonfinite(journal, record))
                for metric, value in record.values.items():
                    step.values.setdefault(metric, {})[name] = value
                    if record.weight != 1 or metric in step.weights:
                        step.weights.setdefault(metric, {})[name] = record.weight
            case Observed():
                for metric, doubles in record.values.items():
                    step.pools.setdefault(metric, Pool()).add(array("d", doubles))
            case Tabled():
                step.tables.append((name, record))
        step.time = max(step.time, record.time)
        if journal.step != record.step:
            step.outside = True
            self.heard[journal.started.attempt, record.step] = self.now
        if not journal.uses_steps:
            journal.moved_on_to = max(journal.moved_on_to, record.step)

    def end_span(self, name: str, journal: Journal, begun: SpanStarted, ended: SpanEnded, made: Reduced) -> None:
        """End a span; if it is a phase, add its time, memory and tokens to its step."""
        ended = _not_before(begun.time, ended)
        open_ = journal.phases.pop(begun.span_id, None)
        self._goodput.leave(name, journal.started, begun.span_id, ended.time, ended.attributes)
        span = assemble.span(journal.started, begun, ended, open_)
        if open_ is not None:
            if not is_remote(name):
                made.phases.append(span)
            if ended.timed:
                journal.timed[begun.span_id] = Timed(begun.name, begun.part, (ended.time - begun.time) / _NS)
            if not begun.part:
                self._forensics.leave(name, begun.name)
        if begun.step is None or self.is_closed(journal, begun.step):
            made.items.append(span)
            return
        step = self.step(journal, begun.step)
        step.spans.append(span)
        if open_ is not None and not journal.lost:  # the time at which a lost process left the phase is unknown
            if ended.timed:
                _await(journal, begun.step, 1)
            boundaries.merge(
                step,
                boundaries.close_phase(journal, begun, ended, open_, boundaries.labels(journal, self._state.labels)),
            )
            seconds = (ended.time - begun.time) / _NS
            if begun.part:
                step.add_part(begun.name, begun.part, name, seconds)
                return
            of_phase = step.seconds.setdefault(begun.name, {})
            of_phase[name] = of_phase.get(name, 0.0) + seconds
            tokens = span.attributes.get("tokens")
            if isinstance(tokens, (int, float)):
                worked_on = step.tokens.setdefault(begun.name, {})
                worked_on[name] = worked_on.get(name, 0.0) + tokens

    def end_step(self, name: str, journal: Journal, record: StepEnded) -> None:
        """End a step of one process."""
        journal.step = -1
        journal.step_ended_at = record.time
        self._goodput.end_step(name, journal.started, record.step, record.time)
        if self.is_closed(journal, record.step):
            if (late := self._state.steps.get(journal.started.attempt, {}).get(record.step)) is not None:
                self._wait_for_others(journal, record.step, late)
            return
        step = self.step(journal, record.step)
        if name in step.ended:  # an interrupt can record an end twice
            return
        record = _not_before(step.begun.get(name, 0), record)
        step.ended[name] = record.time
        boundaries.merge(step, boundaries.at_end_of_step(journal, boundaries.labels(journal, self._state.labels)))
        step.attributes |= record.attributes or {}
        step.links += assemble.links(record)
        step.time = step.time or record.time
        self._wait_for_others(journal, record.step, step)
        if record.error is not None:
            journal.failed_in = record.step
            step.error = assemble.error_text(record.error)
            if record.error[0]:
                step.attributes[semconv.ERROR_TYPE] = record.error[0]
        step.ok |= record.ok

    def _wait_for_others(self, journal: Journal, number: int, step: OpenStep) -> None:
        """Begin the deadline of a step that a process has left, unless it has begun."""
        if not step.outside:
            step.outside = True
            self.heard[journal.started.attempt, number] = self.now

    def _time_on_device(self, name: str, journal: Journal, record: DeviceTimed, made: Reduced) -> None:
        """Add the time on the device to a phase; the gap is the host's seconds less the device's."""
        timed = journal.timed.pop(record.span_id, None)
        if record.step is not None:
            _await(journal, record.step, -1)
        if timed is None or math.isnan(record.seconds):
            return
        on_device = assemble.on_device(journal.started, timed, record)
        if not is_remote(name):
            made.phases.append(on_device)
        if record.step is None or self.is_closed(journal, record.step):
            return
        step = self.step(journal, record.step)
        step.spans = [assemble.timed(span, record) for span in step.spans]
        if not timed.part:
            step.add_part(timed.phase, "device", name, record.seconds)
            step.add_part(timed.phase, "gap", name, timed.seconds - record.seconds)


def identified(journal: Journal, *events: Event) -> list[Event]:
    """Return events of a process with the attributes that identify it."""
    return [replace(event, attributes=assemble.who(journal.started) | event.attributes) for event in events]


def open_rollouts(state: State) -> list[str]:
    """Return the trace ids of the rollouts that have begun and not ended."""
    spans = (span for known in state.journals.values() for span in known.spans.values())
    return [span.trace_id.hex() for span in spans if is_rollout(span)]


def is_rollout(span: SpanStarted) -> bool:
    """Return whether a span is the root of a trace that waits for a step."""
    return span.name in ROLLOUTS and not span.parent_id and span.kind is not None


def _not_before(begun: int, ended: _End) -> _End:
    """Return the end, at the earliest at the beginning: the clock may have been set back in between."""
    return ended if ended.time >= begun else replace(ended, time=begun)


def _await(journal: Journal, step: int, count: int) -> None:
    """Count the values that devices still have to deliver for a step."""
    left = journal.awaited.pop(step, 0) + count
    if left and not journal.over:  # negative if another thread recorded the arrival first
        journal.awaited[step] = left

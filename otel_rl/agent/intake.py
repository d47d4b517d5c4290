"""Takes the records of all processes into the state, and makes at once what needs no row."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.agent import assemble, boundaries
from otel_rl.agent.forensics import Forensics
from otel_rl.agent.goodput import Goodput
from otel_rl.agent.rollout_traces import ROLLOUTS
from otel_rl.agent.state import Journal, OpenStep, Timed, is_remote
from otel_rl.export import Event, Params
from otel_rl.record_events import Lost
from otel_rl.records import (
    Configured,
    Consumed,
    DeviceSeen,
    DeviceTimed,
    Finished,
    Happened,
    Logged,
    OnDevice,
    Record,
    Refusals,
    Sampled,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
    Tabled,
)
from otel_rl.stats.pool import Pool

if TYPE_CHECKING:
    from otel_rl.agent.state import State
    from otel_rl.export import Item, Span
    from otel_rl.semconv.recognise import Vocabulary

_NS = 1_000_000_000


class Intake:
    """Takes records in, one after the other.

    Args:
        state: What is remembered.
        vocabulary: What the names mean.

    Attributes:
        items: What was made of records at once: parameters, events, spans outside of steps.
        phases: Phases that ended; their spans are items only when the step is closed.
        forensics: What is noticed on the way.
        goodput: Where the time of the processes went.
        rollouts: Traces of rollouts that began.
    """

    def __init__(self, state: State, vocabulary: Vocabulary) -> None:
        self._state = state
        self.items: list[Item] = []
        self.phases: list[Span] = []
        self.rollouts = [
            span.trace_id.hex()
            for known in state.journals.values()
            for span in known.spans.values()
            if is_rollout(span)
        ]
        self.forensics = Forensics(vocabulary)
        self.goodput = Goodput(state.time_spent, vocabulary.phase)

    def take(self, name: str, journal: Journal, record: Record) -> None:
        """Take in a record of the journal of this name."""
        journal.last_time = max(journal.last_time, getattr(record, "time", 0))
        match record:
            case Logged() | Sampled() | Tabled():
                self._log(name, journal, record)
            case SpanStarted():
                boundaries.cross(name, journal, record.memory, record.devices, self.forensics.ledger)
                journal.spans[record.span_id] = record
                if record.kind is None or is_rollout(record):
                    name_and_part = (record.name, record.part)
                    self.goodput.enter(name, journal.started, record.span_id, name_and_part, record.time)
                if is_rollout(record):
                    self.rollouts.append(record.trace_id.hex())
                if record.kind is None:
                    journal.phases[record.span_id] = boundaries.open_phase(record)
            case SpanEnded():
                boundaries.cross(name, journal, record.memory, record.devices, self.forensics.ledger)
                if (begun := journal.spans.pop(record.span_id, None)) is not None:
                    self._end_span(name, journal, begun, record)
            case StepStarted():
                boundaries.cross(name, journal, record.memory, record.devices, self.forensics.ledger)
                self.goodput.begin_step(name, journal.started, record.time, first=not journal.uses_steps)
                journal.highest = {}
                journal.step = journal.moved_on_to = record.step
                journal.takes_part = journal.uses_steps = True
                step = self._step(journal, record.step)
                step.begun[name] = record.time
            case StepEnded():
                boundaries.cross(name, journal, record.memory, record.devices, self.forensics.ledger)
                self.items += self.forensics.balance(name, journal, record.step, record.time)
                self._end_step(name, journal, record)
            case Finished():
                journal.over = True
                self._abandon(name, journal, record.time, None)
                self.goodput.end(name, journal.started, record.time)
            case Lost():
                self._lose(name, journal, record)
            case _:
                self._take_what_is_no_boundary(name, journal, record)

    def _take_what_is_no_boundary(self, name: str, journal: Journal, record: Record) -> None:
        match record:
            case Configured():
                self.items.append(Params(record.time, record.values))
            case Happened():
                event = assemble.event(journal.started.rank, record)
                self.items.append(self.forensics.complete(name, event))
            case Refusals():
                journal.refusals = record.counts
            case DeviceSeen():
                journal.devices[record.index] = record
            case Consumed():
                journal.takes_part = True
                self._step(journal, record.step).consumed.append(record)
            case OnDevice():
                _await(journal, record.step, record.count)
            case DeviceTimed():
                self._time_on_device(name, journal, record)

    def _step(self, journal: Journal, number: int) -> OpenStep:
        return self._state.steps.setdefault(journal.started.attempt, {}).setdefault(number, OpenStep())

    def _is_closed(self, journal: Journal, number: int) -> bool:
        return number <= self._state.closed.get(journal.started.attempt, -1)

    def _log(self, name: str, journal: Journal, record: Logged | Sampled | Tabled) -> None:
        journal.takes_part = True
        step = self._step(journal, record.step)
        if name not in step.reported:
            step.reported.append(name)
        match record:
            case Logged():
                self.items += self.forensics.nonfinite(journal, record)
                weight = record.weight if record.weight >= 0 and math.isfinite(record.weight) else 1.0
                for metric, value in record.values.items():
                    step.values.setdefault(metric, {})[name] = value
                    if weight != 1.0 or metric in step.weights:
                        step.weights.setdefault(metric, {})[name] = weight
            case Sampled():
                for metric, doubles in record.values.items():
                    step.samples.setdefault(metric, Pool()).add(array("d", doubles))
            case Tabled():
                step.tables.append((name, record))
        step.time = max(step.time, record.time)
        if journal.step != record.step:
            step.heard_at = record.time
        if not journal.uses_steps:
            journal.moved_on_to = max(journal.moved_on_to, record.step)

    def _end_span(self, name: str, journal: Journal, begun: SpanStarted, ended: SpanEnded) -> None:
        open_ = journal.phases.pop(begun.span_id, None)
        self.goodput.leave(name, journal.started, begun.span_id, ended.time, ended.attributes)
        span = assemble.span(journal.started, begun, ended, open_)
        if open_ is not None:
            if not is_remote(name):
                self.phases.append(span)
            if ended.timed:
                journal.timed[begun.span_id] = Timed(begun.name, begun.part, (ended.time - begun.time) / _NS)
            if not begun.part:
                self.forensics.leave(name, begun.name)
        if begun.step is None or self._is_closed(journal, begun.step):
            self.items.append(span)
            return
        step = self._step(journal, begun.step)
        step.spans.append(span)
        if open_ is not None and not journal.lost:  # when a lost process left the phase, nobody knows
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

    def _end_step(self, name: str, journal: Journal, record: StepEnded) -> None:
        journal.step = -1
        journal.step_ended_at = record.time
        self.goodput.end_step(name, journal.started, record.step, record.time)
        if self._is_closed(journal, record.step):
            return
        step = self._step(journal, record.step)
        step.ended[name] = record.time
        boundaries.merge(step, boundaries.at_end_of_step(journal, boundaries.labels(journal, self._state.labels)))
        step.attributes |= record.attributes or {}
        step.links += assemble.links(record.links or ())
        step.time = step.time or record.time
        step.heard_at = step.heard_at or record.time
        if record.error is not None:
            step.error = assemble.error_text(record.error)

    def _time_on_device(self, name: str, journal: Journal, record: DeviceTimed) -> None:
        """Complete a phase with what its device says; the gap is the host's seconds less the device's."""
        timed = journal.timed.pop(record.span_id, None)
        if record.step is not None:
            _await(journal, record.step, -1)
        if timed is None or math.isnan(record.seconds):
            return
        on_device = assemble.on_device(journal.started, timed, record)
        if not is_remote(name):
            self.phases.append(on_device)
        if record.step is None or self._is_closed(journal, record.step):
            return
        step = self._step(journal, record.step)
        step.spans = [assemble.timed(span, record) for span in step.spans]
        if not timed.part:
            step.add_part(timed.phase, "device", name, record.seconds)
            step.add_part(timed.phase, "gap", name, timed.seconds - record.seconds)

    def _lose(self, name: str, journal: Journal, record: Lost) -> None:
        journal.over = True
        if not journal.is_rank and not journal.spans and journal.step < 0:
            self.goodput.end(name, journal.started, journal.last_time)
            return  # an actor, say: it had nothing to do, and whoever made it needed it no longer
        journal.lost = True
        time = max(record.time, journal.last_time)
        phases = [span.name for span in journal.spans.values() if span.kind is None]
        attributes = {semconv.PHASE: phases[-1]} if phases else {}
        inside = None if journal.step < 0 else journal.step
        self.items.append(
            Event(semconv.EVENT_PROCESS_LOST, time, attributes, inside, journal.started.rank)  # type: ignore[arg-type]
        )
        self._abandon(name, journal, time, semconv.EVENT_PROCESS_LOST)
        self.goodput.end(name, journal.started, time)

    def _abandon(self, name: str, journal: Journal, time: int, error: str | None) -> None:
        """End what the process left open; nothing comes from its devices any more."""
        journal.awaited, journal.timed = {}, {}
        for begun in list(journal.spans.values()):
            ended = SpanEnded(begun.span_id, time, b"", error=None if error is None else (error, ""))
            self._end_span(name, journal, begun, ended)
        journal.spans = {}
        if journal.step >= 0:
            number = journal.step
            if error is not None:
                self._step(journal, number).abandoned.append(name)
            self._end_step(name, journal, StepEnded(number, time, b"", error=None if error is None else (error, "")))


def is_rollout(span: SpanStarted) -> bool:
    """Tell whether it is the root of a trace that waits for a step."""
    return span.name in ROLLOUTS and not span.parent_id and span.kind is not None


def _await(journal: Journal, step: int, count: int) -> None:
    """Count what is still to come from the devices for a step."""
    left = journal.awaited.pop(step, 0) + count
    if left and not journal.over:  # below 0 where another thread was quicker to record that it came
        journal.awaited[step] = left

"""Takes the records of all processes into the state, and makes at once what needs no row."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.analysis.goodput import ROLLOUTS, Goodput
from otel_rl.agent.steps import assemble, boundaries, ending
from otel_rl.agent.steps.forensics import Forensics
from otel_rl.agent.steps.state import Journal, OpenStep, Timed, is_remote
from otel_rl.export import Event, Params
from otel_rl.journal.record_events import Lost, Revived
from otel_rl.journal.records import (
    Configured,
    Consumed,
    DeviceSeen,
    DeviceTimed,
    Finished,
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
    from otel_rl.agent.steps.state import State
    from otel_rl.export import AttributeValue, Item, Span
    from otel_rl.semconv.recognise import Vocabulary

_NS = 1_000_000_000
_LONGEST_ERROR = 500
"""Characters of an error that are kept of each process, since all are saved with every checkpoint."""
_End = TypeVar("_End", SpanEnded, StepEnded)


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
        heard: When open steps were last heard of from a process that is not inside them, by attempt and step.
        now: What the clock of the agent says.
    """

    def __init__(self, state: State, vocabulary: Vocabulary) -> None:
        self._state = state
        self.items: list[Item] = []
        self.phases: list[Span] = []
        self.heard: dict[tuple[int, int], int] = {}
        self.now = 0
        self._down: list[tuple[Journal, Event]] = []
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
        if not isinstance(record, Lost):
            self._note_life(name, journal, record)
        match record:
            case Logged() | Observed() | Tabled():
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
                journal.failed_in = -1
                journal.step = journal.moved_on_to = record.step
                journal.takes_part = journal.uses_steps = True
                step = self._step(journal, record.step)
                step.begun[name] = record.time
            case StepEnded():
                boundaries.cross(name, journal, record.memory, record.devices, self.forensics.ledger)
                self._tell(journal, *self.forensics.balance(name, journal, record.step, record.time))
                self._end_step(name, journal, record)
            case _:
                self._take_other(name, journal, record)

    def _take_other(self, name: str, journal: Journal, record: Record) -> None:
        match record:
            case Lost():
                self._lose(name, journal, record)
            case Revived():
                self._revive(name, journal, record)
            case Configured():
                self.items.append(Params(record.time, record.values))
            case Happened():
                event = assemble.event(journal.started.rank, record)
                self._tell(journal, self.forensics.complete(name, event))
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
            case Finished():
                self._finish(name, journal, record)

    def _tell(self, journal: Journal, *events: Event) -> None:
        """Make items of events of a process, with who it is."""
        self.items += [replace(event, attributes=assemble.who(journal.started) | event.attributes) for event in events]

    def _step(self, journal: Journal, number: int) -> OpenStep:
        return self._state.steps.setdefault(journal.started.attempt, {}).setdefault(number, OpenStep())

    def _is_closed(self, journal: Journal, number: int) -> bool:
        return number <= self._state.closed.get(journal.started.attempt, -1)

    def _log(self, name: str, journal: Journal, record: Logged | Observed | Tabled) -> None:
        journal.takes_part = True
        step = self._step(journal, record.step)
        if name not in step.reported:
            step.reported.append(name)
        match record:
            case Logged():
                self._tell(journal, *self.forensics.nonfinite(journal, record))
                for metric, value in record.values.items():
                    step.values.setdefault(metric, {})[name] = value
                    if record.weight != 1 or metric in step.weights:
                        step.weights.setdefault(metric, {})[name] = record.weight
            case Observed():
                for metric, doubles in record.values.items():
                    step.samples.setdefault(metric, Pool()).add(array("d", doubles))
            case Tabled():
                step.tables.append((name, record))
        step.time = max(step.time, record.time)
        if journal.step != record.step:
            step.outside = True
            self.heard[journal.started.attempt, record.step] = self.now
        if not journal.uses_steps:
            journal.moved_on_to = max(journal.moved_on_to, record.step)

    def _end_span(self, name: str, journal: Journal, begun: SpanStarted, ended: SpanEnded) -> None:
        ended = _not_before(begun.time, ended)
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
        if name in step.ended:  # an end that an interrupt made come again
            return
        record = _not_before(step.begun.get(name, 0), record)
        step.ended[name] = record.time
        boundaries.merge(step, boundaries.at_end_of_step(journal, boundaries.labels(journal, self._state.labels)))
        step.attributes |= record.attributes or {}
        step.links += assemble.links(record)
        step.time = step.time or record.time
        if not step.outside:
            step.outside = True
            self.heard[journal.started.attempt, record.step] = self.now
        if record.error is not None:
            journal.failed_in = record.step
            step.error = assemble.error_text(record.error)
            if record.error[0]:
                step.attributes[semconv.ERROR_TYPE] = record.error[0]
        step.ok |= record.ok

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

    def _finish(self, name: str, journal: Journal, record: Finished) -> None:
        is_corrected = journal.over and not journal.lost  # what it expected at its exit, by its exit status
        if is_corrected and (record.outcome, record.exit_code) == (journal.outcome, journal.exit_code):
            return
        if is_corrected:
            self._state.ended, journal.error = None, ""
        journal.over, journal.lost = True, False
        journal.outcome, journal.exit_code = record.outcome, record.exit_code
        journal.ended_at = max(record.time, journal.last_time)
        error = None
        if record.outcome != "finished":
            error = record.error or (record.outcome, "")
            journal.error = " ".join(assemble.error_text(error)[:_LONGEST_ERROR].split())
            self._down.append((journal, assemble.failed(journal, error)))
            if journal.failed_in >= 0 and not self._is_closed(journal, journal.failed_in):
                self._step(journal, journal.failed_in).abandoned.append(name)
        if is_corrected:
            return
        self._abandon(name, journal, record.time, error)
        self.goodput.end(name, journal.started, record.time)
        self.forensics.ledger.forget(name)

    def _lose(self, name: str, journal: Journal, record: Lost) -> None:
        journal.over = True
        journal.ended_at = max(record.time, journal.last_time)
        if not journal.is_rank and not journal.spans and journal.step < 0:
            self.goodput.end(name, journal.started, journal.ended_at)
            self.forensics.ledger.forget(name)
            return  # an actor, say: it had nothing to do, and whoever made it needed it no longer
        journal.lost = True
        journal.outcome, journal.error = "lost", "lost"
        phases = [span.name for span in journal.spans.values() if span.kind is None]
        inside = None if journal.step < 0 else journal.step
        told: dict[str, AttributeValue] = {semconv.PHASE: phases[-1]} if phases else {}
        rank = journal.started.rank
        self._down.append((journal, Event(semconv.EVENT_PROCESS_LOST, journal.ended_at, told, inside, rank)))
        self._abandon(name, journal, journal.ended_at, (semconv.EVENT_PROCESS_LOST, ""))
        self.goodput.end(name, journal.started, journal.ended_at)
        self.forensics.ledger.forget(name)

    def tell_ends(self) -> None:
        """Make events of the processes that ended badly since the last call, numbered in the order of their ends."""
        if not self._down:
            return
        events = {id(journal): event for journal, event in self._down}
        order: dict[int, int] = {}
        for journal in self._state.journals.values():
            attempt = journal.started.attempt
            order[attempt] = max(journal.order, order.get(attempt, 0))
        for journal in ending.in_order(journal for journal, _ in self._down):
            journal.order = order[journal.started.attempt] = order[journal.started.attempt] + 1
            event = events[id(journal)]
            told: dict[str, AttributeValue] = {semconv.PROCESS_DOWN_ORDER: journal.order}
            self._tell(journal, replace(event, attributes=event.attributes | told))
        self._down.clear()

    def _note_life(self, name: str, journal: Journal, record: Record) -> None:
        """Take note of when a process recorded; if it was taken for dead and goes on, take that back."""
        journal.last_time = max(journal.last_time, getattr(record, "time", 0))
        if journal.lost or isinstance(record, Revived):
            journal.over = journal.lost = False
            journal.outcome, journal.error, journal.order = "finished", "", 0
            self._state.ended = None
            self.goodput.resume(name, journal.started, journal.ended_at)

    def _revive(self, name: str, journal: Journal, record: Revived) -> None:
        """Tell that a process goes on that was held for dead; steps that were closed without it get a late row."""
        for step in self._state.steps.get(journal.started.attempt, {}).values():
            if name in step.abandoned:
                step.abandoned.remove(name)
        inside = None if journal.moved_on_to < 0 else journal.moved_on_to
        self._tell(journal, Event(semconv.EVENT_PROCESS_REVIVED, record.time, {}, inside, journal.started.rank))

    def _abandon(self, name: str, journal: Journal, time: int, error: tuple[str, str] | None) -> None:
        """End what the process left open; nothing comes from its devices any more."""
        journal.awaited, journal.timed = {}, {}
        for begun in list(journal.spans.values()):
            ended = SpanEnded(begun.span_id, time, b"", error=error)
            self._end_span(name, journal, begun, ended)
        journal.spans = {}
        if journal.step >= 0:
            number = journal.step
            if error is not None:
                self._step(journal, number).abandoned.append(name)
            self._end_step(name, journal, StepEnded(number, time, b"", error=error))


def is_rollout(span: SpanStarted) -> bool:
    """Tell whether it is the root of a trace that waits for a step."""
    return span.name in ROLLOUTS and not span.parent_id and span.kind is not None


def _not_before(begun: int, ended: _End) -> _End:
    """Return the end, not before the beginning: a clock may have been set back in between."""
    return ended if ended.time >= begun else replace(ended, time=begun)


def _await(journal: Journal, step: int, count: int) -> None:
    """Count what is still to come from the devices for a step."""
    left = journal.awaited.pop(step, 0) + count
    if left and not journal.over:  # below 0 where another thread was quicker to record that it came
        journal.awaited[step] = left

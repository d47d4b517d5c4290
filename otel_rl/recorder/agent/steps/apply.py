"""Applies the records of processes to the state: one method for each kind of record, found in one table.

Each method returns the items that need not wait for their step. Those for ends of processes are in `ends`.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.analysis import SpanLeft, SpanOpened, StepLeft
from otel_rl.export import Params
from otel_rl.recorder.agent.steps import assemble, boundaries
from otel_rl.recorder.agent.steps.bounds import Bounds
from otel_rl.recorder.agent.steps.contribution import Contribution
from otel_rl.recorder.agent.steps.printing import Printing
from otel_rl.recorder.agent.steps.state import Timed, is_remote, is_rollout
from otel_rl.recorder.convert.known_names import OTHER
from otel_rl.recorder.journal.records import (
    IDS,
    TRAINED,
    UNKNOWN,
    Configured,
    Consumed,
    DeviceSeen,
    DeviceTimed,
    Happened,
    Logged,
    Observed,
    OnDevice,
    Printed,
    Record,
    Refusals,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
    Tabled,
    Wrote,
)
from otel_rl.recorder.stats.pool import Pool
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item, Span
    from otel_rl.recorder.agent.steps.analyses import Analyses
    from otel_rl.recorder.agent.steps.message_buffer import MessageBuffer
    from otel_rl.recorder.agent.steps.state import Journal, State

_NS = 1_000_000_000
_MOST_REASONS = 16
"""Reasons why a process drops trajectories that are counted apart: a text can have a number in it."""
_End = TypeVar("_End", SpanEnded, StepEnded)


class Applier:
    """Applies the records of processes to the state, one after the other.

    Attributes:
        now: The time on the agent's clock, in nanoseconds.
        heard: When each open step was last heard of, on that clock, by attempt and step.
        bounds: The limits of what the state holds.
        methods: The method for each kind of record; the other kinds are for analyses alone.
        messages: The messages of trajectories that wait for their step.
        printing: The log records of what is printed.
        phases: Phases that ended since they were last popped, for the instruments.
    """

    def __init__(
        self,
        run_id: str,
        state: State,
        messages: MessageBuffer,
        analyses: Analyses,
    ) -> None:
        self._run_id, self._state = run_id, state
        self.analyses = analyses
        self.now = 0
        self.heard: dict[tuple[int, int], int] = {}
        self.phases: list[Span] = []
        self.bounds = Bounds(state)
        self.messages = messages
        self.printing = Printing()
        self.methods: dict[type[Record], Callable[[str, Journal, Any], Sequence[Item]]] = {
            StepStarted: self.begin_step,
            StepEnded: self.end_step,
            SpanStarted: self._begin_span,
            SpanEnded: self._end_span,
            Logged: self._log,
            Observed: self._observe,
            Tabled: self._add_table,
            Consumed: self._consume,
            Wrote: self._hold_messages,
            OnDevice: self._await_device,
            Printed: self.printing.items,
            DeviceTimed: self._time_on_device,
            DeviceSeen: self._see_device,
            Happened: self._report,
            Refusals: self._count_refusals,
            Configured: self._configure,
        }

    def advance(self, now: int) -> int:
        """Move the clock forward to `now`, never back; return the time."""
        self.now = max(self.now, now)
        return self.now

    def apply(self, name: str, journal: Journal, record: Record) -> Sequence[Item]:
        """Apply a record of the journal of this name."""
        # Analyses come first: the memory ledger charges the phase that was open until this record.
        items = self.analyses.take(name, journal, record)
        method = self.methods.get(type(record))
        if method is None:
            return items
        made = method(name, journal, record)
        return [*items, *made] if items else made

    def contribution(self, name: str, journal: Journal, number: int) -> Contribution:
        """Return what a process has recorded for a step; the step is opened if it is not open."""
        attempt = journal.started.attempt
        self.heard[attempt, number] = self.now
        step = self._state.steps.setdefault(attempt, {}).setdefault(number, {})
        known = step.get(name)
        if known is None:
            known = step[name] = Contribution()
        return known

    def _begin_span(self, name: str, journal: Journal, record: SpanStarted) -> Sequence[Item]:
        boundaries.cross(journal, record)
        if not self.bounds.opens(name, journal, record):
            return ()
        journal.spans[record.span_id] = record
        if is_rollout(record):
            journal.samples = True
            journal.time.enter_trajectory(record.span_id, record.name, record.time)
            version = (record.awaits or {}).get(semconv.POLICY_VERSION)
            journal.version = max(journal.version, version if isinstance(version, int) else UNKNOWN)
        if record.kind is None:
            journal.phases[record.span_id] = boundaries.open_phase(record)
            journal.time.enter(record.span_id, (record.name, record.part), record.time)
            journal.failed_phase = ""
            is_worker = not (journal.generates or journal.is_rank)
            journal.generates |= is_worker and category_of(record.name) == "rollout"
        return self.analyses.take(name, journal, SpanOpened(record))

    def _end_span(self, name: str, journal: Journal, record: SpanEnded) -> Sequence[Item]:
        boundaries.cross(journal, record)
        begun = journal.spans.get(record.span_id)
        return () if begun is None else self.end_span(name, journal, begun, record)

    def end_span(self, name: str, journal: Journal, begun: SpanStarted, ended: SpanEnded) -> Sequence[Item]:
        """End a span; if it is a phase, add its time, memory and tokens to its step."""
        ended = _not_before(begun.time, ended)
        del journal.spans[begun.span_id]
        self.bounds.closed()
        phase = journal.phases.pop(begun.span_id, None)
        own_ns = journal.time.leave(begun.span_id, ended.time)
        leaving = self.analyses.take(name, journal, SpanLeft(begun, ended, own_ns))
        span = assemble.span(self._run_id, journal, begun, ended, phase, own_ns)
        if span.name == semconv.SPAN_TRAJECTORY:
            texts = self.messages.attributes(span.trace_id, span.span_id)
            span = replace(span, attributes=span.attributes | texts)
        if phase is not None:
            if ended.error is not None:
                journal.failed_phase = journal.failed_phase or begun.name
            if not is_remote(name):
                self.phases.append(span)
            if ended.timed:
                journal.timed[begun.span_id] = Timed(begun.name, begun.part, (ended.time - begun.time) / _NS)
        # A span of another library can end after its step has closed, and must not open the step again for a late row.
        if begun.step is None or (phase is None and self._state.is_closed(journal.started.attempt, begun.step)):
            return [*leaving, span]
        step = self.contribution(name, journal, begun.step)
        if self.bounds.waits(step, span):
            step.spans.append(span)
        else:
            leaving.append(span)
        step.add_own(begun.name, own_ns)
        if phase is None or journal.lost:  # the time at which a lost process left the phase is unknown
            return leaving
        if ended.timed:
            _await(journal, begun.step, 1)
        labels = boundaries.labels(journal, self._state.labels)
        step.add_memory(boundaries.close_phase(journal, begun, ended, phase, labels))
        seconds = (ended.time - begun.time) / _NS
        if begun.part:
            step.add_part(begun.name, begun.part, seconds)
            return leaving
        step.seconds[begun.name] = step.seconds.get(begun.name, 0.0) + seconds
        tokens = span.attributes.get("tokens")
        if isinstance(tokens, (int, float)):
            step.tokens[begun.name] = step.tokens.get(begun.name, 0.0) + tokens
        return leaving

    def begin_step(self, name: str, journal: Journal, record: StepStarted) -> Sequence[Item]:
        """Begin a step of one process."""
        boundaries.cross(journal, record)
        if not journal.uses_steps:
            journal.time.begin_first_step(record.time)
        journal.highest, journal.dropped = {}, {}
        journal.failed_in, journal.failed_phase = -1, ""
        journal.step, journal.began_step_at = record.step, record.time
        journal.takes_part = journal.uses_steps = True
        journal.move(record.step)
        step = self.contribution(name, journal, record.step)
        step.begun, step.ended = record.time if step.begun is None else step.begun, None
        return ()

    def end_step(self, name: str, journal: Journal, record: StepEnded) -> Sequence[Item]:
        """End a step of one process."""
        boundaries.cross(journal, record)
        return self.leave_step(name, journal, record)

    def leave_step(self, name: str, journal: Journal, record: StepEnded) -> Sequence[Item]:
        """Add the end of a step of one process to its contribution; an interrupt can record an end twice."""
        is_inside = journal.step == record.step
        journal.step = -1
        journal.step_ended_at = record.time
        step = self.contribution(name, journal, record.step)
        if step.ended is not None:
            return self.analyses.take(name, journal, StepLeft(record, None))
        if step.begun is None and is_inside:  # the step has closed in between
            step.begun = journal.began_step_at
        record = _not_before(step.begun or 0, record)
        step.ended = record.time
        journal.time.end_step(record.time)
        seconds = None if step.begun is None else (record.time - step.begun) / _NS
        items = self.analyses.take(name, journal, StepLeft(record, seconds))
        step.add_memory(boundaries.at_end_of_step(journal, boundaries.labels(journal, self._state.labels)))
        step.attributes |= record.attributes or {}
        step.links += assemble.links(record)
        step.time = step.time or record.time
        if record.error is not None:
            journal.failed_in = record.step
            step.error = assemble.error_text(record.error)
            if record.error[0]:
                step.attributes[semconv.ERROR_TYPE] = record.error[0]
        step.ok |= record.ok
        return items

    def _log(self, name: str, journal: Journal, record: Logged) -> Sequence[Item]:
        step = self._logged_for(name, journal, record)
        step.values.update(record.values)
        if record.weight != 1 or step.weights:
            step.weights.update(dict.fromkeys(record.values, record.weight))
        return ()

    def _observe(self, name: str, journal: Journal, record: Observed) -> Sequence[Item]:
        step = self._logged_for(name, journal, record)
        for metric, doubles in record.values.items():
            step.pools.setdefault(metric, Pool()).add(array("d", doubles))
        return ()

    def _add_table(self, name: str, journal: Journal, record: Tabled) -> Sequence[Item]:
        self._logged_for(name, journal, record).tables.append(record)
        return ()

    def _logged_for(self, name: str, journal: Journal, record: Logged | Observed | Tabled) -> Contribution:
        """Return the contribution to the step that a process logs for; if it marks no steps, it moves there."""
        journal.takes_part = True
        if not journal.uses_steps:
            journal.move(record.step)
        step = self.contribution(name, journal, record.step)
        step.has_logged = True
        step.time = max(step.time, record.time)
        return step

    def _consume(self, name: str, journal: Journal, record: Consumed) -> Sequence[Item]:
        journal.takes_part = True
        record = self.messages.consume(journal.started.attempt, record)
        if record.outcome == TRAINED:
            journal.dropped = {}
        else:
            known, outcome = journal.dropped, record.outcome
            reason = outcome if outcome in known or len(known) < _MOST_REASONS else OTHER
            known[reason] = known.get(reason, 0) + len(record.ids) // IDS.size
            journal.dropped_at = record.time
        self.contribution(name, journal, record.step).consumed.append(record)
        return ()

    def _hold_messages(self, name: str, journal: Journal, record: Wrote) -> Sequence[Item]:
        self.messages.add(name, record)
        return ()

    def _await_device(self, name: str, journal: Journal, record: OnDevice) -> Sequence[Item]:
        _await(journal, record.step, record.count)
        return ()

    def _time_on_device(self, name: str, journal: Journal, record: DeviceTimed) -> Sequence[Item]:
        """Add the time on the device to a phase; the gap is the host's seconds less the device's."""
        timed = journal.timed.pop(record.span_id, None)
        # The time of a phase that was refused is not one of the values that the step waits for
        # (recorder/agent/test_bounds.py).
        is_recorded = timed is not None or record.span_id in journal.spans
        if record.step is not None and is_recorded:
            _await(journal, record.step, -1)
        if timed is None or math.isnan(record.seconds):
            return ()
        if not is_remote(name):
            self.phases.append(assemble.on_device(journal.started, timed, record))
        if record.step is None:
            return ()
        step = self.contribution(name, journal, record.step)
        for place in range(len(step.spans) - 1, -1, -1):  # it is one of the last
            if step.spans[place].span_id == f"{record.span_id:016x}":
                step.spans[place] = assemble.timed(step.spans[place], record)
                break
        if not timed.part:
            step.add_part(timed.phase, "device", record.seconds)
            step.add_part(timed.phase, "gap", timed.seconds - record.seconds)
        return ()

    def _see_device(self, name: str, journal: Journal, record: DeviceSeen) -> Sequence[Item]:
        journal.devices[record.index] = record
        return ()

    def _report(self, name: str, journal: Journal, record: Happened) -> Sequence[Item]:
        event = assemble.event(journal.started.rank, record)
        event = replace(event, attributes=event.attributes | self.analyses.attributes(name, event))
        return assemble.identified(journal, event)

    def _count_refusals(self, name: str, journal: Journal, record: Refusals) -> Sequence[Item]:
        journal.refusals = record.counts
        return ()

    def _configure(self, name: str, journal: Journal, record: Configured) -> Sequence[Item]:
        return (Params(record.time, record.values),)


def _not_before(begun: int, ended: _End) -> _End:
    """Return the end, at the earliest at the beginning: the clock may have been set back in between."""
    return ended if ended.time >= begun else replace(ended, time=begun)


def _await(journal: Journal, step: int, count: int) -> None:
    """Count the values that devices still have to deliver for a step."""
    left = journal.awaited.pop(step, 0) + count
    if left and not journal.over:  # negative if another thread recorded the arrival first
        journal.awaited[step] = left

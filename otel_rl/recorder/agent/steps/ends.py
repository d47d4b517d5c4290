"""Applies the ends of processes to the state: normal ends, failures, losses, and revivals after a wrong loss.

The ends of all its processes are the end of an attempt. A process with a role that was killed waits until it is known
whether the run was ending, since its creator may then stop it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.analysis import ProcessEnded, ProcessResumed
from otel_rl.export import Ended, Event
from otel_rl.recorder.agent.steps import assemble
from otel_rl.recorder.facts.processes import (
    STOP_S,
    cause_of,
    ended_badly,
    how_it_ended,
    may_be_stopped,
    stopped_by_the_end,
)
from otel_rl.recorder.journal.ending import ending_by_status
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import Finished, SpanEnded, StepEnded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.export import AttributeValue, DeathCause, Item, Outcome
    from otel_rl.recorder.agent.steps.apply import Applier
    from otel_rl.recorder.agent.steps.state import Journal, State
    from otel_rl.recorder.journal.records import Record

_NS = 1_000_000_000
_LONGEST_ERROR = 500
"""Characters of an error that are kept of each process, since all are saved with every checkpoint."""
_MOST_NAMED = 3
_MOST_LEFT = 16
"""Open spans of a process that are kept after its death."""
_LOST_EXIT_CODE = 255


class _End(NamedTuple):
    """The end of a process, with the fields of `otel_rl.recorder.journal.records.Finished`, and its cause."""

    time: int
    outcome: Outcome
    error: tuple[str, str] | None
    exit_code: int
    cause: DeathCause = ""


class Ends:
    """Applies the ends of processes to the state, and the proof that a process lives."""

    def __init__(self, state: State, applier: Applier) -> None:
        self._state, self._applier = state, applier
        self._down: list[tuple[Journal, Event]] = []
        self._pending = {name for name, journal in state.journals.items() if journal.pending is not None}
        applier.methods |= {Finished: self.end, Lost: self.end, Revived: self._revive}

    @property
    def are_pending(self) -> bool:
        """Whether the end of a process waits until it is known whether the run was ending."""
        return bool(self._pending)

    def note_life(self, name: str, journal: Journal, record: Record) -> list[Item]:
        """Record when a process was last heard of; if it counted as dead, undo that."""
        journal.last_time = max(journal.last_time, getattr(record, "time", 0))
        if journal.pending is not None:
            journal.pending = None
            self._pending.remove(name)
        if journal.lost or isinstance(record, Revived):
            journal.over = journal.lost = False
            # The end of the attempt is taken back too: it ends again later, as its processes then do
            # (faults/test_attempts.py).
            journal.outcome, journal.error, journal.order, journal.left = "finished", "", 0, []
            journal.exit_code, journal.cause, journal.ended_step, journal.ended_phase = 0, "", None, ""
            self._state.ended = None
            return self._applier.analyses.take(name, journal, ProcessResumed(journal.ended_at))
        return []

    def end(self, name: str, journal: Journal, record: Finished | Lost) -> list[Item]:
        """Apply the end of a process; one that its creator may have stopped waits."""
        end = _end_of(record)
        if journal.is_rank or not may_be_stopped(end.outcome, end.cause):
            return self._apply(name, journal, end, is_lost=isinstance(record, Lost))
        if journal.pending is None:
            journal.pending, journal.pending_since = record, self._applier.now
            self._pending.add(name)
        return []

    def decide(self) -> list[Item]:
        """Apply the ends that wait, if it is known by now whether the run was ending, or after 4 s."""
        items: list[Item] = []
        for name in sorted(self._pending):
            journal = self._state.journals[name]
            record = journal.pending
            assert record is not None
            ranks = self._ranks_beside(journal)
            ends = [(one.outcome if one.over else None, one.ended_at) for one in ranks]
            verdict = stopped_by_the_end(max(record.time, journal.last_time), ends)
            waited = self._applier.now - journal.pending_since
            if verdict is None and waited < STOP_S * _NS and not all(one.over for one in ranks):
                continue
            journal.pending = None
            self._pending.remove(name)
            end, is_lost = _end_of(record), isinstance(record, Lost)
            if verdict is not None and verdict != end.outcome:
                end, is_lost = _End(end.time, verdict, None, end.exit_code, "stopped"), False
            items += self._apply(name, journal, end, is_lost=is_lost)
        return items

    def _ranks_beside(self, journal: Journal) -> list[Journal]:
        """Return the ranks of the attempt of a process."""
        known = self._state.journals.values()
        return [one for one in known if one.is_rank and one.started.attempt == journal.started.attempt]

    def _apply(self, name: str, journal: Journal, end: _End, *, is_lost: bool) -> list[Item]:
        is_corrected = journal.over and not journal.lost  # the exit status corrects the outcome that it expected
        if is_corrected and (end.outcome, end.exit_code) == (journal.outcome, journal.exit_code):
            return []
        if is_corrected:
            self._state.ended, journal.error = None, ""
        journal.over, journal.lost = True, is_lost and end.cause != "exit"
        journal.outcome, journal.exit_code, journal.cause = end.outcome, end.exit_code, end.cause
        journal.ended_at = max(end.time, journal.last_time)
        error = self._go_down(name, journal, end) if ended_badly(end.outcome) else None
        return [] if is_corrected else self._abandon(name, journal, journal.ended_at, error)

    def _go_down(self, name: str, journal: Journal, end: _End) -> tuple[str, str]:
        """Note how and where a process ended badly; return the error of the spans that it left open."""
        error = end.error or (end.outcome, "")
        journal.error = " ".join(assemble.error_text(error)[:_LONGEST_ERROR].split())
        phases = [span.name for span in journal.spans.values() if span.kind is None]
        journal.ended_phase = phases[-1] if phases else "" if journal.lost else journal.failed_phase
        inside = max(journal.step, journal.position if journal.lost else journal.failed_in)
        journal.ended_step = None if inside < 0 else inside
        if end.outcome == "lost":
            self._down.append((journal, _lost(journal, phases)))
            return semconv.EVENT_PROCESS_LOST, ""
        # A pool of workers is stopped by SIGTERM, with each step perhaps: none of them is the first that went down.
        if end.outcome != "cancelled" or journal.is_rank or not self._ranks_beside(journal):
            self._down.append((journal, assemble.failed(journal, error)))
        if journal.failed_in >= 0 and not self._state.is_closed(journal.started.attempt, journal.failed_in):
            self._applier.contribution(name, journal, journal.failed_in).is_abandoned = True
        return error

    def report(self) -> list[Item]:
        """Return events of the processes that ended badly since the last call, numbered in the order of their ends."""
        if not self._down:
            return []
        events = {id(journal): event for journal, event in self._down}
        order: dict[int, int] = {}
        first: dict[int, str] = {}
        for journal in self._state.journals.values():
            attempt = journal.started.attempt
            order[attempt] = max(journal.order, order.get(attempt, 0))
            if journal.order == 1:
                first[attempt] = journal.label
        items: list[Item] = []
        for journal in in_order(journal for journal, _ in self._down):
            journal.order = order[journal.started.attempt] = order[journal.started.attempt] + 1
            event = events[id(journal)]
            number: dict[str, AttributeValue] = {semconv.PROCESS_DOWN_ORDER: journal.order}
            if first.setdefault(journal.started.attempt, journal.label) != journal.label:
                number[semconv.PROCESS_DOWN_FIRST] = first[journal.started.attempt]
            items += assemble.identified(journal, replace(event, attributes=event.attributes | number))
        self._down.clear()
        return items

    def _revive(self, name: str, journal: Journal, record: Revived) -> list[Item]:
        """Report a process that continues although it counted as dead; steps that closed without it get a late row."""
        for step in self._state.steps.get(journal.started.attempt, {}).values():
            if name in step:
                step[name].is_abandoned = False
        inside = None if journal.position < 0 else journal.position
        revived = Event(semconv.EVENT_PROCESS_REVIVED, record.time, {}, inside, journal.started.rank)
        return [*assemble.identified(journal, revived)]

    def _abandon(self, name: str, journal: Journal, time: int, error: tuple[str, str] | None) -> list[Item]:
        """End the spans and the step that the process left open; its devices deliver nothing more."""
        # A step waits for values of devices: those of a dead process would hold up every later row
        # (recorder/trainer/test_devices.py).
        journal.awaited, journal.timed = {}, {}
        journal.left = [*journal.spans.values()][-_MOST_LEFT:] if error is not None else []
        items: list[Item] = []
        for begun in list(journal.spans.values()):
            items += self._applier.end_span(name, journal, begun, SpanEnded(begun.span_id, time, b"", error=error))
        if journal.step >= 0:
            number = journal.step
            if error is not None:
                self._applier.contribution(name, journal, number).is_abandoned = True
            items += self._applier.leave_step(name, journal, StepEnded(number, time, b"", error=error))
        journal.time.advance(time)
        return [*items, *self._applier.analyses.take(name, journal, ProcessEnded(time))]


def _end_of(record: Finished | Lost) -> _End:
    """Return how a process ended by its last record, or by what its agent knows of its death."""
    if isinstance(record, Finished):
        return _End(record.time, record.outcome, record.error, record.exit_code)
    cause, code = cause_of(record.cause), record.exit_code
    if cause == "exit":
        return _End(record.time, *ending_by_status(code or 0), cause)
    code = _LOST_EXIT_CODE if code is None else code
    how = how_it_ended("lost", cause=cause)
    if cause in ("slurm_time_limit", "slurm"):
        return _End(record.time, "cancelled", ("SIGKILL", how), code, cause)
    return _End(record.time, "lost", ("", how), code, cause)


def ended(attempt: int, journals: Sequence[Journal]) -> Ended:
    """Return the end of an attempt whose processes have all ended.

    The outcome is that of the rank that ended badly first: later ends are its consequence, such as SIGTERM from a
    launcher. Processes with a role count only if there are no ranks, since their creator may stop them. The error names
    the processes that ended badly, in order, including those with a role; those that were cancelled after another one
    are left out.
    """
    time = max(journal.ended_at for journal in journals)
    ranks = [journal for journal in journals if journal.is_rank] or journals
    down = in_order(journal for journal in ranks if ended_badly(journal.outcome))
    if not down:
        return Ended(time, attempt, "finished")
    first = down[0]
    are_named = (one for one in journals if one.order and (one.outcome != "cancelled" or first.outcome == "cancelled"))
    bad = in_order(are_named)
    named = [f"{journal.label}: {journal.error}" for journal in bad[:_MOST_NAMED]]
    if len(bad) > _MOST_NAMED:
        named.append(f"and {len(bad) - _MOST_NAMED} more")
    return Ended(time, attempt, first.outcome, "; ".join(named), first.exit_code or 1)


def _lost(journal: Journal, phases: Sequence[str]) -> Event:
    """Return the event of a lost process, with what it did and why it died, as far as that is known."""
    known: dict[str, AttributeValue | None] = {
        semconv.PHASE: journal.ended_phase or None,
        semconv.PROCESS_PHASES: [*phases] or None,
        semconv.PROCESS_MEMORY: journal.resident or None,
        semconv.PROCESS_CAUSE: journal.cause or None,
        semconv.PROCESS_EXIT_CODE: None if journal.exit_code == _LOST_EXIT_CODE else journal.exit_code,
    }
    attributes = {name: value for name, value in known.items() if value is not None}
    return Event(semconv.EVENT_PROCESS_LOST, journal.ended_at, attributes, journal.ended_step, journal.started.rank)


def in_order(journals: Iterable[Journal]) -> list[Journal]:
    """Return processes in the order of their ends.

    Deaths that were detected at once have the same time; the process with the oldest last record comes first.
    """
    return sorted(journals, key=lambda one: (one.ended_at, one.last_time, one.started.role, one.started.rank))

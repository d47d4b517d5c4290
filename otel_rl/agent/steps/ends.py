"""Applies the ends of processes to the state: normal ends, failures, losses, and revivals after a wrong loss.

The ends of all its processes are the end of an attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.steps import assemble
from otel_rl.export import Ended, Event, Outcome
from otel_rl.journal.record_events import Lost, Revived
from otel_rl.journal.records import Finished, SpanEnded, StepEnded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.agent.analysis.goodput import Goodput
    from otel_rl.agent.steps.apply import Applier
    from otel_rl.agent.steps.forensics import Forensics
    from otel_rl.agent.steps.state import Journal, State
    from otel_rl.export import AttributeValue, Item
    from otel_rl.journal.records import Record

_LONGEST_ERROR = 500
"""Characters of an error that are kept of each process, since all are saved with every checkpoint."""
_SEVERITY: tuple[Outcome, ...] = get_args(Outcome)
"""Outcomes, the worst one last."""
_MOST_NAMED = 3
_MOST_LEFT = 16
"""Open spans of a process that are kept after its death."""
_LOST_EXIT_CODE = 255
_LOST = {
    "oom_kill": "lost (the kernel killed it: out of memory)",
    "signal": "lost (SIGKILL)",
    "exec": "lost (it started another program in its place)",
    "slurm_time_limit": "lost (the Slurm job reached its time limit)",
    "slurm": "lost (the Slurm job was canceled or preempted)",
}
"""The error of a lost process, by the cause of its death."""


class Ends:
    """Applies the ends of processes to the state, and the proof that a process lives."""

    def __init__(self, state: State, applier: Applier, forensics: Forensics, goodput: Goodput) -> None:
        self._state, self._applier = state, applier
        self._forensics, self._goodput = forensics, goodput
        self._down: list[tuple[Journal, Event]] = []
        applier.methods |= {Finished: self._finish, Lost: self.lose, Revived: self._revive}

    def note_life(self, name: str, journal: Journal, record: Record) -> None:
        """Record when a process was last heard of; if it counted as dead, undo that."""
        journal.last_time = max(journal.last_time, getattr(record, "time", 0))
        if journal.lost or isinstance(record, Revived):
            journal.over = journal.lost = False
            journal.outcome, journal.error, journal.order, journal.left = "finished", "", 0, []
            self._state.ended = None
            self._goodput.resume(name, journal.started, journal.ended_at)

    def _finish(self, name: str, journal: Journal, record: Finished) -> list[Item]:
        if record.outcome == "crashed" and _is_idle(journal):
            return self._let_go(name, journal, record.time)
        is_corrected = journal.over and not journal.lost  # the exit status corrects the outcome that it expected
        if is_corrected and (record.outcome, record.exit_code) == (journal.outcome, journal.exit_code):
            return []
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
            if journal.failed_in >= 0 and not self._state.is_closed(journal.started.attempt, journal.failed_in):
                self._applier.contribution(name, journal, journal.failed_in).is_abandoned = True
        return [] if is_corrected else self._abandon(name, journal, record.time, error)

    def lose(self, name: str, journal: Journal, record: Lost) -> list[Item]:
        """End a process that died without a final record."""
        if _is_idle(journal):
            return self._let_go(name, journal, record.time)
        journal.over = journal.lost = True
        journal.ended_at = max(record.time, journal.last_time)
        journal.outcome, journal.error = "lost", _LOST.get(record.cause or "", "lost")
        self._down.append((journal, _lost(journal, record)))
        return self._abandon(name, journal, journal.ended_at, (semconv.EVENT_PROCESS_LOST, ""))

    def _let_go(self, name: str, journal: Journal, time: int) -> list[Item]:
        """End a process that its creator has stopped while it did nothing, such as an actor."""
        journal.over = True
        journal.ended_at = max(time, journal.last_time)
        self._forget(name, journal, journal.ended_at)
        return []

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
        found: list[Item] = []
        for journal in in_order(journal for journal, _ in self._down):
            journal.order = order[journal.started.attempt] = order[journal.started.attempt] + 1
            event = events[id(journal)]
            number: dict[str, AttributeValue] = {semconv.PROCESS_DOWN_ORDER: journal.order}
            if first.setdefault(journal.started.attempt, journal.label) != journal.label:
                number[semconv.PROCESS_DOWN_FIRST] = first[journal.started.attempt]
            found += assemble.identified(journal, replace(event, attributes=event.attributes | number))
        self._down.clear()
        return found

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
        journal.awaited, journal.timed = {}, {}
        journal.left = [*journal.spans.values()][-_MOST_LEFT:] if error is not None else []
        found: list[Item] = []
        for begun in list(journal.spans.values()):
            found += self._applier.end_span(name, journal, begun, SpanEnded(begun.span_id, time, b"", error=error))
        if journal.step >= 0:
            number = journal.step
            if error is not None:
                self._applier.contribution(name, journal, number).is_abandoned = True
            self._applier.leave_step(name, journal, StepEnded(number, time, b"", error=error))
        self._forget(name, journal, time)
        return found

    def _forget(self, name: str, journal: Journal, time: int) -> None:
        self._goodput.end(name, journal.started, time)
        self._forensics.ledger.forget(name)


def ended(attempt: int, journals: Sequence[Journal]) -> Ended:
    """Return the end of an attempt whose processes have all ended.

    The outcome is the worst of its ranks. Processes with a role count only if there are no ranks, since their creator
    may stop them. The error names the processes that failed, in order, including those with a role.
    """
    ranks = [journal for journal in journals if journal.is_rank] or journals
    worst = max(ranks, key=lambda journal: (_SEVERITY.index(journal.outcome), -journal.ended_at))
    time = max(journal.ended_at for journal in journals)
    if worst.outcome == "finished":
        return Ended(time, attempt, "finished")
    bad = in_order(journal for journal in journals if journal.outcome != "finished")
    named = [f"{journal.label}: {journal.error}" for journal in bad[:_MOST_NAMED]]
    if len(bad) > _MOST_NAMED:
        named.append(f"and {len(bad) - _MOST_NAMED} more")
    code = _LOST_EXIT_CODE if worst.outcome == "lost" else worst.exit_code or 1
    return Ended(time, attempt, worst.outcome, "; ".join(named), code)


def _lost(journal: Journal, record: Lost) -> Event:
    """Return the event of a lost process, with what it did and why it died, as far as that is known."""
    phases: list[bool | int | float | str] = [span.name for span in journal.spans.values() if span.kind is None]
    known: dict[str, AttributeValue | None] = {
        semconv.PHASE: phases[-1] if phases else None,
        semconv.PROCESS_PHASES: phases or None,
        semconv.PROCESS_MEMORY: journal.resident or None,
        semconv.PROCESS_CAUSE: record.cause,
        semconv.PROCESS_EXIT_CODE: record.exit_code,
    }
    attributes = {name: value for name, value in known.items() if value is not None}
    last = max(journal.step, journal.position)
    step = None if last < 0 else last
    return Event(semconv.EVENT_PROCESS_LOST, journal.ended_at, attributes, step, journal.started.rank)


def _is_idle(journal: Journal) -> bool:
    return not journal.is_rank and not journal.spans and journal.step < 0


def in_order(journals: Iterable[Journal]) -> list[Journal]:
    """Return processes in the order of their ends.

    Deaths that were detected at once have the same time; the process with the oldest last record comes first.
    """
    return sorted(journals, key=lambda one: (one.ended_at, one.last_time, one.started.role, one.started.rank))

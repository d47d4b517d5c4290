"""Turns the records of all ranks into items: one row and one trace for each step.

A pure state machine: the output depends only on the records and the given times, and the whole state is data. The
outbox saves the state with the output, so the next agent continues where the last one stopped.

A step closes, which makes its row and its spans, when every rank that takes part has moved on to a later step or has
ended, or when nothing was recorded for it for the deadline. Later records make a row of their own, marked late. The
last attempt ends when all of its processes have ended and all of its steps have closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.agent.analysis.goodput import Goodput
from otel_rl.agent.steps import admission
from otel_rl.agent.steps.closed import Closed, ClosedSteps
from otel_rl.agent.steps.forensics import Forensics
from otel_rl.agent.steps.intake import Intake
from otel_rl.agent.steps.lives import Lives, ended
from otel_rl.agent.steps.state import Journal, State, is_remote, stand_in
from otel_rl.agent.steps.window import Observed
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.export import Identity, Item, Span
from otel_rl.journal.record_events import Lost, Revived
from otel_rl.journal.records import Finished, Record, Started

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.agent.steps.naming import Reductions
    from otel_rl.semconv.vocabulary import Vocabulary
    from otel_rl.setup.settings import Flops

_NS = 1_000_000_000
_SILENCE_NS = 30 * _NS
"""A silent machine counts as lost after this time, once local processes have ended: half the default idle timeout."""


class Reduced(msgspec.Struct):
    """Everything that one call of the reducer made of records.

    Attributes:
        items: Rows, spans, events, tables, parameters and ends, in the order in which they were made.
        phases: Phases that ended, for the instruments; their spans are items only when the step closes.
        rollouts: Trace ids of the rollouts that began.
        observed: The observations that each row was reduced from, by the identity of the row.
    """

    items: list[Item] = []
    phases: list[Span] = []
    rollouts: list[str] = []
    observed: dict[Identity, Observed] = {}

    def add(self, other: Reduced) -> None:
        """Add what another call made."""
        self.items += other.items
        self.phases += other.phases
        self.rollouts += other.rollouts
        self.observed |= other.observed


class Reducer:
    """The state machine that turns records into items.

    A step closes `deadline` seconds after its last record although ranks are missing. With `whole_world`, it waits for
    the ranks of other machines too. The quarantine gets records that cannot be processed.
    """

    def __init__(
        self,
        run_id: str,
        reductions: Reductions,
        vocabulary: Vocabulary,
        model: Flops,
        deadline: float,
        state: State | None = None,
        *,
        whole_world: bool = False,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.state = State() if state is None else state
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._run_id, self._whole_world = run_id, whole_world
        self._deadline = int(deadline * _NS)
        self.forensics = Forensics(vocabulary)
        self.goodput = Goodput(self.state.time_spent, vocabulary.phase)
        self._intake = Intake(self.state, self.forensics, self.goodput)
        self._lives = Lives(self.state, self._intake, self.forensics, self.goodput)
        self._closed = ClosedSteps(run_id, self.state, reductions, vocabulary, model, self.goodput, self.quarantine)
        self.stragglers, self.consumption = self._closed.stragglers, self._closed.consumption
        self.engines = self._closed.engines
        self._met: dict[int, int] = {}
        self._heard: int | None = None
        self._live = ""

    def feed(self, records: Iterable[tuple[str, Record]], now: int | None = None) -> Reduced:
        """Apply records, each with the name of its journal; return what they complete.

        `now` is the time of a monotonic clock, in nanoseconds; by default, the times of the records.
        """
        made = Reduced()
        for name, record in records:
            self._heard = self._intake.see(getattr(record, "time", 0) if now is None else now)
            try:
                admission.check(record)
                self._take(name, admission.representable(record), made)
            except Exception as error:  # one invalid record must not end the recording
                self.quarantine.put("intake", name, record, error)
        for attempt in list(self.state.steps):
            with self.quarantine.guard("closing of steps", f"attempt {attempt}"):
                self._close_settled(attempt, made)
        return self._with_ends(made)

    def _take(self, name: str, record: Record, made: Reduced) -> None:
        known = self.state.journals.get(name)
        if isinstance(record, Started) and known is None:
            self._begin(name, record)
            return
        if isinstance(record, Started):
            raise ValueError("the journal has begun already")
        if known is None:  # its first record is damaged; the journal's name identifies the process
            started = stand_in(self._run_id, name, record)
            admission.check(started)
            known = self._begin(name, started)
        if not isinstance(record, Lost):
            self._lives.see(name, known, record)
        if isinstance(record, Finished | Lost | Revived):
            self._lives.take(name, known, record, made)
        else:
            self._intake.take(name, known, record, made)

    def tick(self, now: int) -> Reduced:
        """Close the steps that have waited for too long; call this when no records are left.

        `now` is of the same clock as in `feed`. A new agent restarts the waiting time.
        """
        made = Reduced()
        self._intake.see(now)
        with self.quarantine.guard("loss of machines", "last attempt"):
            self._lose_silent_machines(made)
        for attempt, steps in list(self.state.steps.items()):
            with self.quarantine.guard("closing of steps", f"attempt {attempt}"):
                self._close_settled(attempt, made)
                reached = max((journal.moved_on_to for journal in self.state.of_attempt(attempt)), default=-1)
                overdue = [n for n in steps if n <= reached and self._is_overdue(attempt, n)]
                if overdue:
                    self._close(attempt, max(overdue), made)
        return self._with_ends(made)

    @property
    def is_finished(self) -> bool:
        """Whether every process of the last attempt has ended, and no rank was lost."""
        of_last = self.state.of_attempt(self._last_attempt)
        ranks = [journal for journal in of_last if journal.is_rank]
        world = max((journal.started.world_size for journal in ranks), default=1)
        if self._whole_world and len(ranks) < world:
            return False
        lost = any(journal.lost for journal in ranks or of_last)  # other processes may end in any way
        return bool(of_last) and not lost and all(journal.over for journal in of_last)

    def has_open(self, name: str) -> bool:
        """Return whether the process of a journal took part in a step that is open."""
        journal = self.state.journals.get(name)
        steps = {} if journal is None else self.state.steps.get(journal.started.attempt, {})
        return any(name in step.begun or name in step.reported for step in steps.values())

    def _begin(self, name: str, record: Started) -> Journal:
        """Record a new process; a process with a role belongs to the current attempt of the ranks."""
        state = self.state
        new = state.journals[name] = Journal(record, last_time=record.time)
        self._live = ""
        ranks = max((one.started.attempt for one in state.journals.values() if one.is_rank), default=-1)
        for journal in state.journals.values():
            if not journal.is_rank and not journal.over and ranks >= 0:
                journal.started = replace(journal.started, attempt=ranks)
        attempt = new.started.attempt
        self._met.setdefault(attempt, self._intake.now)
        if state.ended is not None and state.ended.attempt == attempt:
            state.ended = None
        return new

    def _with_ends(self, made: Reduced) -> Reduced:
        """Add the ends of processes and of the last attempt."""
        with self.quarantine.guard("ends of processes", "last attempt"):
            self._lives.report_ends(made)
            self._end_last_attempt(made)
        return made

    def _end_last_attempt(self, made: Reduced) -> None:
        """Make an item of the end of the last attempt, once everything else of it has been made."""
        state = self.state
        if (live := state.journals.get(self._live)) is not None and not live.over:
            return  # one live process is enough: there may be thousands
        last = self._last_attempt
        if state.ended is not None and state.ended.attempt == last:
            return
        of_last = {name: one for name, one in state.journals.items() if one.started.attempt == last}
        self._live = next((name for name, one in of_last.items() if not one.over), "")
        if self._live or not of_last:
            return
        if not self._ranks_are_awaited(last) and not state.steps.get(last):
            state.ended = ended(last, [*of_last.values()])
            made.items.append(state.ended)

    def _lose_silent_machines(self, made: Reduced) -> None:
        """Count silent processes of other machines as lost once all local processes have ended.

        A machine that is switched off sends no record. If it sends records again, its processes are revived.
        """
        if not self._whole_world:
            return
        if self._heard is None:
            self._heard = self._intake.now
        if self._intake.now - self._heard <= _SILENCE_NS:
            return
        last = self._last_attempt
        live = {name: one for name, one in self.state.journals.items() if one.started.attempt == last and not one.over}
        if not all(map(is_remote, live)):
            return
        for name, journal in live.items():
            self._lives.take(name, journal, Lost(journal.last_time), made)

    @property
    def _last_attempt(self) -> int:
        return max((journal.started.attempt for journal in self.state.journals.values()), default=0)

    def _is_overdue(self, attempt: int, number: int) -> bool:
        now = self._intake.now
        step = self.state.steps[attempt][number]
        return step.outside and self._intake.heard.setdefault((attempt, number), now) < now - self._deadline

    def _close_settled(self, attempt: int, made: Reduced) -> None:
        steps = self.state.steps[attempt]
        journals = self.state.of_attempt(attempt)
        if not steps or self._ranks_are_awaited(attempt) or self._is_held_up(attempt):
            return
        awaited = [journal for journal in journals if journal.takes_part and not journal.over]
        for trait in ("uses_steps", "is_rank"):  # processes that mark no steps, or have a role, are not waited for
            awaited = [journal for journal in awaited if getattr(journal, trait)] or awaited
        done_below = min((journal.done_below for journal in awaited), default=max(steps) + 1)
        done = [number for number in steps if number < done_below]
        if done:
            self._close(attempt, max(done), made)

    def _ranks_are_awaited(self, attempt: int) -> bool:
        """Return whether ranks have not begun yet, and the deadline has not passed."""
        journals = self.state.of_attempt(attempt)
        ranks = [journal for journal in journals if journal.is_rank]
        sizes = (one.started.world_size if self._whole_world else one.started.local_world_size for one in ranks)
        expected = max(sizes, default=0)
        begun = sum(journal.takes_part or journal.over for journal in ranks)
        may_come = self._whole_world and len(ranks) < expected  # a machine may be slow to start or to send
        if begun >= expected or (not may_come and all(journal.over for journal in journals)):
            return False
        now = self._intake.now
        return now - self._met.setdefault(attempt, now) <= self._deadline

    def _is_held_up(self, attempt: int) -> bool:
        """Return whether a restarted process has records of an earlier attempt that were not read yet."""
        if attempt == 0:
            return False
        again = {(one.started.role, one.started.rank) for one in self.state.of_attempt(attempt)}
        return any(
            journal.started.attempt < attempt
            and not journal.over
            and not is_remote(name)
            and (journal.started.role, journal.started.rank) in again
            for name, journal in self.state.journals.items()
        )

    def _close(self, attempt: int, last: int, made: Reduced) -> None:
        """Close the steps up to `last` in order, until one that a rank is still inside and that no rank has left."""
        steps = self.state.steps[attempt]
        inside = {journal.step for journal in self.state.of_attempt(attempt)}
        for number in sorted(n for n in steps if n <= last):
            late = number <= self.state.closed.get(attempt, -1)
            if number in inside and not steps[number].ended and not (late and steps[number].outside):
                if late:
                    continue  # its row has left: it holds up no other step
                break
            self._closed.add(Closed(attempt, number, steps.pop(number), late), made)
            self._intake.heard.pop((attempt, number), None)
            self.state.closed[attempt] = max(number, self.state.closed.get(attempt, -1))

"""Turns the records of all ranks into items: one row and one trace for each step.

A state machine: the output depends only on the records and the given times. The outbox saves what rows depend on with
the output, so the next agent continues where the last one stopped; totals, such as those of stragglers, start again.

`attempts` says who takes part in which attempt, `apply` what each record changes, `ends` what the end of a process
changes, `closing` when a step closes, and `closed` what then becomes of it. The last attempt ends when all of its
processes have ended and all of its steps have closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.agent.steps import admission, assemble
from otel_rl.recorder.agent.steps.analyses import none
from otel_rl.recorder.agent.steps.apply import Applier
from otel_rl.recorder.agent.steps.attempts import Attempts
from otel_rl.recorder.agent.steps.closed import Closed, ClosedSteps
from otel_rl.recorder.agent.steps.closing import Closing
from otel_rl.recorder.agent.steps.contribution import whole
from otel_rl.recorder.agent.steps.ends import Ends, ended
from otel_rl.recorder.agent.steps.message_buffer import MOST_WAITING, MessageBuffer
from otel_rl.recorder.agent.steps.reduced import Reduced
from otel_rl.recorder.agent.steps.state import State, is_remote, stand_in
from otel_rl.recorder.agent.steps.step_set import StepSet
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import DeviceSeen, Finished, Printed, Started

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.analyses import Analyses
    from otel_rl.recorder.agent.steps.naming import Reductions
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import Record
    from otel_rl.recorder.settings.settings import Flops
    from otel_rl.semconv.vocabulary import Vocabulary

_NS = 1_000_000_000
_SILENCE_NS = 30 * _NS
"""A silent machine counts as lost after this time, once local processes have ended: half the default idle timeout."""


class Reducer:
    """The state machine that turns records into items.

    A rank that is silent is waited for `deadline` seconds. With `whole_world`, the ranks of other machines are waited
    for too. The quarantine gets records that cannot be processed. Without `messages`, those of
    trajectories are dropped. With `in_spans`, spans have them too.
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
        analyses: Analyses | None = None,
        messages: bool = True,
        in_spans: bool = True,
    ) -> None:
        self.state = State() if state is None else state
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._run_id, self._whole_world = run_id, whole_world
        self.analyses = none(self.state, vocabulary, self.quarantine) if analyses is None else analyses
        self._attempts = Attempts(self.state, whole_world=whole_world)
        self.messages = MessageBuffer(self.state, MOST_WAITING if messages else 0, in_spans=in_spans)
        self._applier = Applier(run_id, self.state, self.messages, self.analyses)
        self.bounds = self._applier.bounds
        self._ends = Ends(self.state, self._applier)
        wait = int(deadline * _NS)
        self._closing = Closing(self.state, self._attempts, self._applier, wait, whole_world=whole_world)
        self._closed = ClosedSteps(
            run_id,
            self.state,
            self._attempts,
            reductions,
            vocabulary,
            model,
            self.analyses,
            self.quarantine,
        )
        self.names = self._closed.names
        self._have_changed = True
        self._heard: int | None = None
        self._live = ""

    def feed(self, records: Iterable[tuple[str, Record]], now: int | None = None) -> Reduced:
        """Apply records, each with the name of its journal; return what they complete.

        `now` is the time of a monotonic clock, in nanoseconds; by default, the times of the records.
        """
        made = Reduced()
        have_ended = False
        for name, record in records:
            self._heard = self._applier.advance(getattr(record, "time", 0) if now is None else now)
            have_ended |= isinstance(record, Finished | Lost | Revived)
            self._have_changed |= isinstance(record, Started | DeviceSeen | Finished | Lost | Revived)
            try:
                record.check()
                made.items += self._apply(name, admission.representable(record))
            except Exception as error:  # one invalid record must not end the recording
                self.quarantine.put("intake", name, record, error)
        made.items += self._decide(have_ended=have_ended)
        for attempt in list(self.state.steps):
            self._close(attempt, made)
        return self._with_ends(made)

    def tick(self, now: int) -> Reduced:
        """Close the steps that have waited for too long; call this when no records are left.

        `now` is of the same clock as in `feed`. A new agent restarts the waiting time.
        """
        made = Reduced()
        self._applier.advance(now)
        with self.quarantine.guard("loss of machines", "last attempt"):
            made.items += self._lose_silent_machines()
        made.items += self._decide()
        for attempt in list(self.state.steps):
            self._close(attempt, made, overdue=True)
        return self._with_ends(made)

    def _decide(self, *, have_ended: bool = False) -> list[Item]:
        """Apply the ends that have waited, if they are clear by now; let attempts follow from the ends."""
        items: list[Item] = []
        if self._ends.are_pending:
            with self.quarantine.guard("ends of processes", "last attempt"):
                items = self._ends.decide()
            have_ended = self._have_changed = True
        if have_ended:
            self._attempts.split()
        return items

    def close_all(self) -> Reduced:
        """Close all open steps, because they are too large; what comes later is in late rows."""
        made = Reduced()
        for attempt, steps in self.state.steps.items():
            for number in sorted(steps):
                with self.quarantine.guard("closing of steps", f"attempt {attempt}"):
                    self._close_step(attempt, number, made)
        return made

    @property
    def is_finished(self) -> bool:
        """Whether every process of the last attempt has ended, and no rank was lost."""
        of_last = self._attempts.members(self._attempts.last).values()
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
        return any(name in step for step in steps.values())

    def _apply(self, name: str, record: Record) -> Sequence[Item]:
        """Apply a record of a journal, which begins with it if it is new."""
        known = self.state.journals.get(name)
        if isinstance(record, Started):
            if known is not None:
                raise ValueError("the journal has begun already")
            self._begin(name, record)
            return ()
        if known is None:  # its first record is damaged; the journal's name identifies the process
            known = self._begin(name, stand_in(self._run_id, name, record))
        resumed: list[Item] = []
        # Neither an agent's own conclusion nor a line that a stuck process prints each minute is a sign of life.
        if not isinstance(record, Lost | Printed):
            resumed = self._ends.note_life(name, known, record)
            self._closing.active[name] = self._applier.now
            self._attempts.see(name, known, getattr(record, "time", 0))
        made = self._applier.apply(name, known, record)
        return [*resumed, *made] if resumed else made

    def _begin(self, name: str, record: Started) -> Journal:
        new = self._attempts.begin(name, record)
        self._live = ""
        attempt = new.started.attempt
        self._closing.met.setdefault(attempt, self._applier.now)
        if self.state.ended is not None and self.state.ended.attempt == attempt:
            self.state.ended = None
        return new

    def _close(self, attempt: int, made: Reduced, *, overdue: bool = False) -> None:
        """Close the steps of an attempt that are settled, in ascending order."""
        with self.quarantine.guard("closing of steps", f"attempt {attempt}"):
            for number in self._closing.settled(attempt, overdue=overdue):
                self._close_step(attempt, number, made)

    def _close_step(self, attempt: int, number: int, made: Reduced) -> None:
        contributions = self.state.steps[attempt].pop(number)
        self.bounds.release(contributions.values())
        late = self.state.is_closed(attempt, number)
        self._applier.heard.pop((attempt, number), None)
        # Closed before its items are made: an analysis or a reduction that raises must not make the step twice
        # (faults/test_poison.py).
        self.state.closed.setdefault(attempt, StepSet()).add(number)
        step = whole(contributions, self._attempts.successions(attempt))
        made.add(self._closed.close(Closed(attempt, number, step, late)))
        with self.quarantine.guard("choice of messages", f"attempt {attempt}, step {number}"):
            made.items += self.messages.leave(attempt, number)

    def _with_ends(self, made: Reduced) -> Reduced:
        """Add what analyses make of the items, ends of processes and of the last attempt, and what began in between."""
        made.items += self.analyses.see(made.items)
        with self.quarantine.guard("ends of processes", "last attempt"):
            made.items += self._ends.report()
            if self._have_changed:
                self._have_changed = False
                made.items += assemble.changed_processes(self.state.journals.values())
            made.items += self._end_last_attempt()
        made.phases += self._applier.phases
        self._applier.phases = []
        return made

    def _end_last_attempt(self) -> list[Item]:
        """Return the end of the last attempt, once everything else of it has been made."""
        state = self.state
        if (live := state.journals.get(self._live)) is not None and not live.over:
            return []  # one live process is enough: there may be thousands
        last = self._attempts.last
        if state.ended is not None and state.ended.attempt == last:
            return []
        of_last = self._attempts.members(last)
        self._live = next((name for name, one in of_last.items() if not one.over), "")
        if self._live or not of_last or self._closing.ranks_are_awaited(last) or state.steps.get(last):
            return []
        state.ended = ended(last, [*of_last.values()])
        return [*self.messages.leave_all(last), state.ended]

    def _lose_silent_machines(self) -> list[Item]:
        """Count silent processes of other machines as lost once all local processes have ended.

        A machine that is switched off sends no record. If it sends records again, its processes are revived.
        """
        if not self._whole_world:
            return []
        # A new agent has heard nothing on its clock: it gives other machines the whole time again
        # (faults/test_agent_clocks.py).
        if self._heard is None:
            self._heard = self._applier.now
        if self._applier.now - self._heard <= _SILENCE_NS:
            return []
        of_last = self._attempts.members(self._attempts.last)
        live = {name: journal for name, journal in of_last.items() if not journal.over}
        if not all(map(is_remote, live)):
            return []
        items = [item for name, one in live.items() for item in self._ends.end(name, one, Lost(one.last_time))]
        self._attempts.split()
        return items

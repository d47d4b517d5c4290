"""Turns the records of all ranks into items: one row and one trace for each step.

A pure state machine: what comes out depends on the records and the times given, nothing else, and the
whole state is data. So an agent that died goes on from the state that lies beside what it made.

A step is closed, which makes its row and its spans, when every rank that takes part has moved on to a
later step or is over; or when nothing more was heard of it for the deadline. What comes later is a row
of its own, marked late. The last attempt ends when all of its processes are over and all of its steps closed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.agent.analysis import consumption
from otel_rl.agent.analysis.consumption import Consumption
from otel_rl.agent.analysis.goodput import PRODUCTIVE
from otel_rl.agent.analysis.stragglers import Stragglers
from otel_rl.agent.steps import admission, assemble, derive, ending, rows
from otel_rl.agent.steps.intake import Intake
from otel_rl.agent.steps.state import Journal, OpenStep, Parts, State, is_remote, stand_in
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.export import identity
from otel_rl.journal.ids import step_ids
from otel_rl.journal.record_events import Lost
from otel_rl.journal.records import Record, Started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.agent.steps.naming import Reductions
    from otel_rl.agent.steps.window import Observed
    from otel_rl.export import Identity, Item, Span, Table
    from otel_rl.semconv.recognise import Vocabulary
    from otel_rl.setup.settings import Flops

_NS = 1_000_000_000
_SILENCE_NS = 30 * _NS
"""After this a silent machine is taken for lost, once the own processes are over: half of the default idle timeout."""


class Reducer:
    """Makes items of records.

    Args:
        run_id: Identity of the run.
        reductions: How each metric is reduced.
        vocabulary: What the names mean.
        model: What FLOPs follow from.
        deadline: Seconds after which a step is closed though ranks are missing.
        state: Where to go on.
        whole_world: Whether ranks of other machines are awaited as well.
        quarantine: Where records go that cannot be processed; without one they are only counted.

    Attributes:
        state: What it remembers.
        observed: The observations that rows were reduced from, until somebody clears it.
        forensics: What it notices on the way.
        stragglers: Who falls behind.
        goodput: Where the workers' time went.
        consumption: What became of trajectories.
        quarantine: Where records go that cannot be processed.
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
        self._run_id = run_id
        self._reductions = reductions
        self._vocabulary = vocabulary
        self._model = model
        self._deadline = int(deadline * _NS)
        self._whole_world = whole_world
        self.stragglers = Stragglers()
        self.consumption = Consumption()
        self._intake = Intake(self.state, vocabulary)
        self.forensics = self._intake.forensics
        self.goodput = self._intake.goodput
        self.observed: dict[Identity, Observed] = {}
        self._met: dict[int, int] = {}
        self._heard: int | None = None
        self._live = ""

    def take_phases(self) -> list[Span]:
        """Return the phases that ended since the last call; their spans are items only when the step is closed."""
        phases, self._intake.phases = self._intake.phases, []
        return phases

    def take_rollouts(self) -> list[str]:
        """Return the traces of rollouts that began since the last call."""
        rollouts, self._intake.rollouts = self._intake.rollouts, []
        return rollouts

    def feed(self, records: Iterable[tuple[str, Record]], now: int | None = None) -> list[Item]:
        """Take records in; return what they complete.

        Args:
            records: Each with the name of its journal.
            now: What a clock says that never jumps, in nanoseconds; by default, the times of the records are the clock.
        """
        for name, record in records:
            self._see(getattr(record, "time", 0) if now is None else now)
            self._heard = self._intake.now
            try:
                admission.check(record)
                self._take(name, admission.representable(record))
            except Exception as error:  # one record that makes no sense must not end the recording
                self.quarantine.put("intake", name, record, error)
        for attempt in list(self.state.steps):
            with self.quarantine.guard("closing of steps", f"attempt {attempt}"):
                self._close_settled(attempt)
        return self._taken_items()

    def _take(self, name: str, record: Record) -> None:
        known = self.state.journals.get(name)
        if isinstance(record, Started) and known is None:
            self._begin(name, record)
            return
        if isinstance(record, Started):
            raise ValueError("the journal has begun already")
        if known is None:  # its first record is damaged; who wrote it is told by the journal's name
            known = self._begin(name, stand_in(self._run_id, name, record))
        self._intake.take(name, known, record)

    def tick(self, now: int) -> list[Item]:
        """Close what has waited for too long at `now`; to be called when all that there is was fed.

        `now` is of the same clock as in `feed`. Waiting begins anew with a new agent.
        """
        self._see(now)
        with self.quarantine.guard("loss of machines", "last attempt"):
            self._lose_silent_machines()
        for attempt, steps in list(self.state.steps.items()):
            with self.quarantine.guard("closing of steps", f"attempt {attempt}"):
                self._close_settled(attempt)
                reached = max((journal.moved_on_to for journal in self._journals_of(attempt)), default=-1)
                overdue = [n for n in steps if n <= reached and self._is_overdue(attempt, n)]
                if overdue:
                    self._close(attempt, max(overdue))
        return self._taken_items()

    @property
    def is_finished(self) -> bool:
        """Whether every process of the last attempt finished as it should."""
        of_last = self._journals_of(self._last_attempt)
        ranks = [journal for journal in of_last if journal.is_rank]
        world = max((journal.started.world_size for journal in ranks), default=1)
        if self._whole_world and len(ranks) < world:
            return False
        lost = any(journal.lost for journal in ranks or of_last)  # others may end as they like
        return bool(of_last) and not lost and all(journal.over for journal in of_last)

    def has_open(self, name: str) -> bool:
        """Tell whether a step is open that the journal took part in."""
        journal = self.state.journals.get(name)
        steps = {} if journal is None else self.state.steps.get(journal.started.attempt, {})
        return any(name in step.begun or name in step.reported for step in steps.values())

    def _see(self, now: int) -> None:
        self._intake.now = max(self._intake.now, now)

    def _begin(self, name: str, record: Started) -> Journal:
        """Take note of a new process; one with a role is part of whichever attempt the ranks make."""
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

    def _taken_items(self) -> list[Item]:
        with self.quarantine.guard("ends of processes", "last attempt"):
            self._intake.tell_ends()
            self._end_last_attempt()
        items, self._intake.items = self._intake.items, []
        return items

    def _end_last_attempt(self) -> None:
        """Make an item of the end of the last attempt, once everything else of it has been made."""
        state = self.state
        if (live := state.journals.get(self._live)) is not None and not live.over:
            return  # one that lives is enough: there may be thousands
        last = self._last_attempt
        if state.ended is not None and state.ended.attempt == last:
            return
        of_last = {name: one for name, one in state.journals.items() if one.started.attempt == last}
        self._live = next((name for name, one in of_last.items() if not one.over), "")
        if self._live or not of_last:
            return
        if not self._ranks_are_awaited(last) and not state.steps.get(last):
            state.ended = ending.ended(last, [*of_last.values()])
            self._intake.items.append(state.ended)

    def _lose_silent_machines(self) -> None:
        """Take processes of other machines for lost if nothing is heard any more, and all of this machine are over.

        Nobody tells that a machine is switched off. If one is heard of again, its processes live again.
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
            self._intake.take(name, journal, Lost(journal.last_time))

    @property
    def _last_attempt(self) -> int:
        return max((journal.started.attempt for journal in self.state.journals.values()), default=0)

    def _journals_of(self, attempt: int) -> list[Journal]:
        return [journal for journal in self.state.journals.values() if journal.started.attempt == attempt]

    def _is_overdue(self, attempt: int, number: int) -> bool:
        now = self._intake.now
        step = self.state.steps[attempt][number]
        return step.outside and self._intake.heard.setdefault((attempt, number), now) < now - self._deadline

    def _close_settled(self, attempt: int) -> None:
        steps = self.state.steps[attempt]
        journals = self._journals_of(attempt)
        if not steps or self._ranks_are_awaited(attempt) or self._is_held_up(attempt):
            return
        awaited = [journal for journal in journals if journal.takes_part and not journal.over]
        for trait in ("uses_steps", "is_rank"):  # those who mark no steps, or are no ranks, hold up nobody
            awaited = [journal for journal in awaited if getattr(journal, trait)] or awaited
        done_below = min((journal.done_below for journal in awaited), default=max(steps) + 1)
        done = [number for number in steps if number < done_below]
        if done:
            self._close(attempt, max(done))

    def _ranks_are_awaited(self, attempt: int) -> bool:
        """Tell whether ranks have not begun yet, though the deadline has not passed."""
        journals = self._journals_of(attempt)
        ranks = [journal for journal in journals if journal.is_rank]
        sizes = (one.started.world_size if self._whole_world else one.started.local_world_size for one in ranks)
        expected = max(sizes, default=0)
        begun = sum(journal.takes_part or journal.over for journal in ranks)
        may_come = self._whole_world and len(ranks) < expected  # a machine that is slow to begin, or to be heard of
        if begun >= expected or (not may_come and all(journal.over for journal in journals)):
            return False
        now = self._intake.now
        return now - self._met.setdefault(attempt, now) <= self._deadline

    def _is_held_up(self, attempt: int) -> bool:
        """Tell whether a process that was started again has records of an earlier attempt that were not read yet."""
        if attempt == 0:
            return False
        again = {(one.started.role, one.started.rank) for one in self._journals_of(attempt)}
        return any(
            journal.started.attempt < attempt
            and not journal.over
            and not is_remote(name)
            and (journal.started.role, journal.started.rank) in again
            for name, journal in self.state.journals.items()
        )

    def _close(self, attempt: int, last: int) -> None:
        """Close the steps up to `last`, in order, as far as nobody is still inside the first of them."""
        steps = self.state.steps[attempt]
        inside = {journal.step for journal in self._journals_of(attempt)}
        for number in sorted(n for n in steps if n <= last):
            if number in inside and not steps[number].ended:
                break
            self._emit(attempt, number, steps.pop(number))
            self._intake.heard.pop((attempt, number), None)
            self.state.closed[attempt] = max(number, self.state.closed.get(attempt, -1))

    def _emit(self, attempt: int, number: int, step: OpenStep) -> None:
        """Make the items of a step; what fails of them is left out, and the others are made."""
        ids = step_ids(self._run_id, attempt, number)
        late = number <= self.state.closed.get(attempt, -1)
        items = self._intake.items
        items.extend(step.spans)
        guard = partial(self.quarantine.guard, source=f"attempt {attempt}, step {number}", thing=step)
        with guard("straggler analysis"):
            for straggler in self.stragglers.take(step.spans):
                items.append(assemble.straggler(straggler, number, self._host_of(attempt, straggler.rank), step.time))
        if step.begun and step.ended and not late:
            with guard("making of the root span"):
                told = consumption.of_step(step.consumed) | step.attributes
                links = [*step.links, *consumption.links(step.consumed)]
                of_step = (step.begun, step.ended, told, step.error, links)
                items.append(assemble.root(ids, attempt, number, *of_step, ok=step.ok))
        ranks = {journal: known.started.rank for journal, known in self.state.journals.items()}
        if step.values or step.samples:
            with guard("recognition of names"):
                self._learn([*step.values, *step.samples])
        values, nonfinite, observed = rows.plain(step), dict[str, int](), None
        with guard("reduction"):
            values, nonfinite, observed = rows.reduced(step, self._reductions)
        logged = set(values)
        with guard("derivation"):
            values |= derive.derived(values, self._measured(attempt, step), self._model, self._vocabulary.read)
        values |= {name: value for name, value in step.memory.items() if name not in values}
        with guard("goodput"):
            values |= self._goodput_of(attempt, number, step)
        with guard("consumption"):
            consumed = self.consumption.take(step.consumed)
            self.goodput.drop(consumption.dropped_tokens(step.consumed))
            values |= {name: value for name, value in consumed.items() if name not in values}
        if values:
            row = replace(
                rows.row(ids, attempt, number, step, values, nonfinite),
                missing_ranks=self._missing(attempt, step),
                late=late,
                part=self.state.parts.setdefault(attempt, Parts()).next(number) if late else 0,
                partial=bool(step.abandoned),
                measured=tuple(name for name in values if name not in logged),
            )
            items.append(row)
            if observed is not None:
                self.observed[identity(row)] = observed
        with guard("making of tables"):
            items.extend(self._numbered(rows.tables(attempt, number, step.tables, ranks), late=late))

    def _numbered(self, tables: Iterable[Table], *, late: bool) -> Iterator[Table]:
        """Yield the tables of a step with their parts: the first one of a name has 0, unless it is late."""
        names = set[str]()
        for table in tables:
            if late or table.name in names:
                parts = self.state.table_parts.setdefault(table.attempt, Parts())
                yield replace(table, part=parts.next(table.step))
            else:
                yield table
            names.add(table.name)

    def _goodput_of(self, attempt: int, number: int, step: OpenStep) -> dict[str, float]:
        """Return the productive part of the ranks' time in a step."""
        seconds = self.goodput.of_step(attempt, number)
        total = sum(seconds.values())
        return {"perf/goodput": seconds.get(PRODUCTIVE, 0.0) / total} if total and step.seconds else {}

    def _host_of(self, attempt: int, rank: int) -> str:
        ranks = (journal for journal in self._journals_of(attempt) if journal.is_rank)
        return next((journal.started.host for journal in ranks if journal.started.rank == rank), "")

    def _learn(self, names: Iterable[str]) -> None:
        if self._vocabulary.learn(names):
            self.state.dialect = self._vocabulary.chosen or ""
            self._reductions.forget()

    def _measured(self, attempt: int, step: OpenStep) -> derive.Step:
        """Return what the phases and the ends of the step tell, of the rank that took longest."""
        ended = {name: time for name, time in step.ended.items() if name in step.begun and name not in step.abandoned}
        return derive.Step(
            seconds=max(((time - step.begun[name]) / _NS for name, time in ended.items()), default=0.0),
            phases={phase: max(by.values()) for phase, by in step.seconds.items()},
            parts={
                phase: {part: max(by.values()) for part, by in parts.items()} for phase, parts in step.parts.items()
            },
            tokens={phase: sum(by.values()) for phase, by in step.tokens.items()},
            devices=sum(journal.is_rank for journal in self._journals_of(attempt)) or 1,
        )

    def _missing(self, attempt: int, step: OpenStep) -> tuple[int, ...]:
        outside = [name for name in step.reported if name not in step.begun]  # those inside may have more to report
        reported = {*step.ended, *outside}.difference(step.abandoned)
        return tuple(
            sorted(
                journal.started.rank
                for name, journal in self.state.journals.items()
                if journal.started.attempt == attempt
                and journal.is_rank
                and journal.takes_part
                and (journal.outcome != "finished" or not journal.over)
                and name not in reported
            )
        )

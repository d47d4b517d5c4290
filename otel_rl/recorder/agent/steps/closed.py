"""Turns a step that has closed into items: its trace, one row and its tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from otel_rl.export import Row, identity
from otel_rl.recorder.agent.steps import assemble, derive, rows, trajectories
from otel_rl.recorder.agent.steps.reduced import Reduced
from otel_rl.recorder.agent.steps.row_names import RowNames
from otel_rl.recorder.agent.steps.state import Parts
from otel_rl.recorder.journal.ids import step_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from otel_rl.export import Table, Trajectory
    from otel_rl.recorder.agent.steps.analyses import Analyses
    from otel_rl.recorder.agent.steps.attempts import Attempts
    from otel_rl.recorder.agent.steps.contribution import Contribution, Number, Whole
    from otel_rl.recorder.agent.steps.naming import Reductions
    from otel_rl.recorder.agent.steps.state import State
    from otel_rl.recorder.delivery.quarantine import Quarantine
    from otel_rl.recorder.settings.settings import Flops
    from otel_rl.semconv.vocabulary import Vocabulary

_NS = 1_000_000_000


class Closed(NamedTuple):
    """A step that has closed; if `late` is true, it had closed before, and these are records that came later."""

    attempt: int
    number: int
    step: Whole
    late: bool


class ClosedSteps:
    """Turns closed steps into items. A part that fails is put into quarantine, and the others are made."""

    def __init__(
        self,
        run_id: str,
        state: State,
        attempts: Attempts,
        reductions: Reductions,
        vocabulary: Vocabulary,
        model: Flops,
        analyses: Analyses,
        quarantine: Quarantine,
    ) -> None:
        self._run_id, self._model = run_id, model
        self._state, self._attempts = state, attempts
        self._analyses, self._quarantine = analyses, quarantine
        self._reductions, self._vocabulary = reductions, vocabulary
        self.names = RowNames(reductions, state.renamed)

    def close(self, closed: Closed) -> Reduced:
        """Return the items of a step."""
        attempt, number, step, late = closed
        made = Reduced(items=[*step.spans])
        guard = partial(self._quarantine.guard, source=f"attempt {attempt}, step {number}", thing=[*step.by.values()])
        if step.begun and step.ended and not late:
            with guard("making of the root span"):
                made.items.append(assemble.root(step_ids(self._run_id, attempt, number), attempt, number, step))
        if step.values or step.pools:
            with guard("recognition of names"):
                self._learn([*step.values, *step.pools])
        with guard("choice of names"):
            self.names.learn(step)
        values, nonfinite, observed = rows.plain(step), dict[str, int](), None
        with guard("reduction"):
            values, nonfinite, observed = rows.reduced(step, self._reductions, self.names)
        with guard("listing of trajectories"):
            made.items += self._trajectories(closed)
        logged = set(values)
        with guard("derivation"):
            _add(values, self._derived(closed, values))
        _add(values, step.memory)
        conclusion = self._analyses.close(closed, values)
        _add(values, conclusion.values)
        made.items += conclusion.items
        if values:
            row = self._row(closed, values, nonfinite, logged)
            made.items.append(row)
            if observed is not None:
                made.observed[identity(row)] = observed
        with guard("making of tables"):
            tables = [(self._state.journals[name].started.rank, t) for name, one in step.by.items() for t in one.tables]
            made.items.extend(self._numbered(rows.tables(attempt, number, tables), late=late))
        return made

    def _row(self, closed: Closed, values: dict[str, Number], nonfinite: dict[str, int], logged: set[str]) -> Row:
        attempt, number, step, late = closed
        ids = step_ids(self._run_id, attempt, number)
        return Row(
            step=number,
            time_unix_nano=step.time,
            values=values,
            attempt=attempt,
            trace_id=f"{ids.trace_id:032x}" if step.begun else "",
            span_id=f"{ids.span_id:016x}" if step.begun else "",
            nonfinite=nonfinite,
            missing_ranks=self._missing(closed),
            late=late,
            part=self._state.parts.setdefault(attempt, Parts()).next(number) if late else 0,
            partial=step.is_partial,
            measured=tuple(name for name in values if name not in logged),
            digests=self._digests(step),
        )

    def _digests(self, step: Whole) -> str:
        """Return the digests of the ranks of a step, in their order; those of ranks that lack are zero."""
        journals = self._state.journals
        by_rank = {journals[name].started.rank: one for name, one in step.digests.items() if journals[name].is_rank}
        return "".join(f"{by_rank.get(rank, 0):04x}" for rank in range(max(by_rank) + 1)) if len(by_rank) > 1 else ""

    def _derived(self, closed: Closed, values: Mapping[str, Number]) -> dict[str, float]:
        measured = self._measured(closed.attempt, closed.step)
        return derive.derived(values, measured, self._model, self._vocabulary.read)

    def _trajectories(self, closed: Closed) -> Iterator[Trajectory]:
        for name, one in closed.step.by.items():
            for record in one.consumed:
                yield from trajectories.trajectories(record, closed.attempt, self._state.journals[name].started.rank)

    def _numbered(self, tables: Iterable[Table], *, late: bool) -> Iterator[Table]:
        """Yield the tables of a step with their parts: the first one of a name has 0, unless it is late."""
        names = set[str]()
        for named in tables:
            table = replace(named, name=self.names.base(named.name, "table"))
            if late or table.name in names:
                parts = self._state.table_parts.setdefault(table.attempt, Parts())
                yield replace(table, part=parts.next(table.step))
            else:
                yield table
            names.add(table.name)

    def _learn(self, names: Iterable[str]) -> None:
        if self._vocabulary.learn(names):
            self._state.dialect = self._vocabulary.chosen or ""
            self._reductions.forget()

    def _measured(self, attempt: int, step: Whole) -> derive.Step:
        """Return the durations and tokens of a step and its phases; of several ranks, the slowest counts."""
        members = self._attempts.members(attempt).values()
        ended = {name: one for name, one in step.by.items() if one.ended is not None and not one.is_abandoned}
        seconds = [(one.ended - one.begun) / _NS for one in ended.values() if one.ended and one.begun is not None]
        return derive.Step(
            seconds=max(seconds, default=0.0),
            phases={phase: max(by.values()) for phase, by in step.seconds.items()},
            parts={
                phase: {part: max(by.values()) for part, by in parts.items()} for phase, parts in step.parts.items()
            },
            tokens={phase: sum(by.values()) for phase, by in step.tokens.items()},
            devices=sum(journal.is_rank for journal in members) or 1,
            have_gpus=any(journal.devices for journal in members),
        )

    def _missing(self, closed: Closed) -> tuple[int, ...]:
        """Return the ranks that have not reported; a late row names no rank whose values it or an earlier row has."""
        attempt, number, step, late = closed
        ranks = [one.started for one in self._state.journals.values() if one.takes_part and one.is_rank]
        taking_part = {started.rank for started in ranks if started.attempt == attempt}
        return tuple(
            sorted(
                journal.started.rank
                for name, journal in self._attempts.members(attempt).items()
                if journal.is_rank
                and journal.started.rank in taking_part
                and (journal.outcome != "finished" or not journal.over)
                and not (name in step.by and _has_reported(step.by[name], late=late))
                and not (late and journal.position > number)
            )
        )


def _add(values: dict[str, Number], more: Mapping[str, Number]) -> None:
    """Add values to a row; those of the trainer, and earlier ones, stay."""
    values |= {name: value for name, value in more.items() if name not in values}


def _has_reported(one: Contribution, *, late: bool) -> bool:
    """Return whether a process has nothing more to report: it has ended the step, or logged for it from outside."""
    return not one.is_abandoned and (one.ended is not None or (one.has_logged and (late or one.begun is None)))

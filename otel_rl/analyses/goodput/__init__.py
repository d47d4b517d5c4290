"""Where the time of all processes goes: the goodput of steps and fleets, and the phases of the last steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.analyses.goodput.hung_time import HungTime, KnownHangs
from otel_rl.analyses.goodput.recent_steps import RecentStep, RecentSteps
from otel_rl.analyses.goodput.time_spent import Goodput, TimeSpent, dropped_tokens
from otel_rl.analysis import Analysis, Conclusion, Point, SpanLeft, StepLeft
from otel_rl.recorder.archive.now import PhaseTime
from otel_rl.recorder.facts.goodput import HUNG, PRODUCTIVE, within
from otel_rl.recorder.facts.own_time import largest_first
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.analysis import Basis, Handler
    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.closed import Closed
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.facts.own_time import PhasePart

    Boundary = SpanStarted | SpanEnded | StepStarted | StepEnded | Finished | Lost


class _Saved(TimeSpent):
    """The part of the checkpoint."""

    recent: list[RecentStep] = msgspec.field(default_factory=list)  # the last steps
    hangs: KnownHangs = msgspec.field(default_factory=KnownHangs)


class GoodputAnalysis(Analysis):
    """Adds up the time of processes from their phases; the checkpoint has all of it."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._saved = _Saved()
        self._begin()
        self._last: dict[str, tuple[Mapping[PhasePart, int], tuple[PhaseTime, ...]]] = {}

    def _begin(self) -> None:
        self._goodput = Goodput(self._saved, self.basis.state.journals)
        self._recent = RecentSteps(self._saved.recent)
        self._hung = HungTime(self._saved.hangs)

    def handlers(self) -> Mapping[type, Handler]:
        """Take the ends of spans and steps, and what a process records after a hang."""
        boundaries: tuple[type, ...] = (SpanStarted, SpanEnded, StepStarted, StepEnded, Finished, Lost)
        return dict.fromkeys(boundaries, self._cross) | {SpanLeft: self._leave_span, StepLeft: self._leave_step}

    def see(self, items: Sequence[Item]) -> tuple[()]:
        """Take hangs."""
        self._hung.see(items, self.basis.state.journals)
        return ()

    def close(self, step: Closed, values: Mapping[str, float]) -> Conclusion:
        """Return the productive share of the time of all ranks in the step."""
        spent = self._goodput.of_step(step.attempt, step.number)
        total = sum(spent.values())
        self._goodput.drop(dropped_tokens(step.step.consumed))
        self._recent.add(step, self.basis.state.journals, values, self._hung.intervals)
        return Conclusion({"perf/goodput": spent.get(PRODUCTIVE, 0) / total} if total and step.step.seconds else {})

    def points(self) -> list[Point]:
        """Return the seconds so far, by fleet and category."""
        return self._goodput.points()

    def now(self) -> Mapping[str, object]:
        """Return where the time of the last step of each process went, and that of the last steps."""
        last = {name: self._last_step(name, journal) for name, journal in self.basis.state.journals.items()}
        return {"last": last, "recent_shares": _phase_times(self._recent.own(self._hung.intervals))}

    def snapshot(self) -> TimeSpent:
        """Return the time so far."""
        return self._saved

    def restore(self, saved: bytes) -> None:
        """Continue adding up."""
        self._saved = msgspec.msgpack.decode(saved, type=_Saved)
        self._begin()

    def _cross(self, name: str, journal: Journal, record: Boundary) -> None:
        if not self._hung.intervals or not journal.is_rank:
            return
        self._hung.end(record.time)
        began = journal.time.until
        if began is not None and (stood := within(self._hung.intervals, began, record.time)):
            self._goodput.hang(name, journal.time.innermost, stood)

    def _leave_span(self, name: str, journal: Journal, moment: SpanLeft) -> None:
        begun, ended, own_ns = moment
        if ended.attributes:
            self._goodput.leave(name, journal, begun, ended.attributes, own_ns)

    def _leave_step(self, name: str, journal: Journal, moment: StepLeft) -> None:
        self._goodput.end_step(name, journal, moment.record.step)

    def _last_step(self, name: str, journal: Journal) -> tuple[PhaseTime, ...]:
        """Return where the time of a process went in its last step; in its whole time, if it has a role and no step."""
        spent = journal.time.last_step or ({} if journal.is_rank else journal.time.spent)
        known = self._last.get(name)
        if known is None or known[0] != spent:
            by_phase: dict[str, int] = {}
            for (phase, _part), count in spent.items():
                by_phase[phase] = by_phase.get(phase, 0) + count
            known = self._last[name] = dict(spent), _phase_times(by_phase)
        return known[1]


def _phase_times(nanoseconds: Mapping[str, float]) -> tuple[PhaseTime, ...]:
    categories = {"": "none", HUNG: "hung"}
    return tuple(
        PhaseTime(phase, categories.get(phase) or category_of(phase), round(count / 1e9, 6))
        for phase, count in largest_first(nanoseconds)
    )

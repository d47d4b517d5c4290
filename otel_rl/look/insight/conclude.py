"""All facts of a run, from one reading of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.look.insight.cost import cost_of
from otel_rl.look.insight.facts import Cost, Facts, Finding, Summary
from otel_rl.look.insight.findings.change import change, lasting, step_changes
from otel_rl.look.insight.findings.contradictions import contradictions
from otel_rl.look.insight.findings.data import data
from otel_rl.look.insight.findings.engines import engines
from otel_rl.look.insight.findings.environment import environment
from otel_rl.look.insight.findings.goodput import goodput
from otel_rl.look.insight.findings.hangs import hangs
from otel_rl.look.insight.findings.held_out import held_out
from otel_rl.look.insight.findings.hidden_change import hidden_changes
from otel_rl.look.insight.findings.last_lines import last_lines
from otel_rl.look.insight.findings.last_words import last_words
from otel_rl.look.insight.findings.learning import learning
from otel_rl.look.insight.findings.memory import memory
from otel_rl.look.insight.findings.mismatch import mismatch
from otel_rl.look.insight.findings.outcome import outcome
from otel_rl.look.insight.findings.recording import recording
from otel_rl.look.insight.findings.resumed import resumed
from otel_rl.look.insight.findings.reward import reward
from otel_rl.look.insight.findings.straggler import straggler
from otel_rl.look.insight.findings.texts import texts
from otel_rl.look.insight.findings.time_spent import time_spent
from otel_rl.look.insight.findings.waits import waits
from otel_rl.look.insight.goodput import attempt_times, goodput_of
from otel_rl.look.insight.phases import phase_times, shares_of
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.state import extent_of, standing
from otel_rl.look.insight.troubles import ordered
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.facts.states import goes_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from otel_rl.look.insight.facts import PhaseShare
    from otel_rl.look.insight.shifts import Shift
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.facts.goodput import AttemptTime
    from otel_rl.recorder.facts.outcome import RunExtent
    from otel_rl.recorder.facts.standing import Standing

    _Find = Callable[["_Basis"], list[Finding]]

logger = log_of(__name__)


class _Basis:
    """A run with what several findings are made of, each computed once."""

    def __init__(self, recorded: RecordedRun) -> None:
        self.recorded = recorded

    @cached_property
    def standing(self) -> Standing:
        return standing(self.recorded)

    @cached_property
    def extent(self) -> RunExtent:
        return extent_of(self.recorded)

    @cached_property
    def changes(self) -> list[Shift]:
        return step_changes(self.recorded, is_live=goes_on(self.standing.state)) if self.recorded.steps else []

    @cached_property
    def summary(self) -> Summary:
        return _summarized(self.recorded, self.standing, self.extent, lasting(self.recorded, self.changes))

    @cached_property
    def shares(self) -> tuple[PhaseShare, ...]:
        return shares_of(phase_times(self.recorded)) if self.recorded.steps else ()

    @cached_property
    def goodput(self) -> dict[str, float]:
        return goodput_of(self.recorded, self.attempts.values(), self.shares)

    @cached_property
    def attempts(self) -> dict[int, AttemptTime]:
        return attempt_times(self.recorded, self.standing, self.extent)

    @property
    def cost(self) -> Cost:
        return cost_of(self.recorded, self.attempts, self.goodput)

    @cached_property
    def stragglers(self) -> list[Finding]:
        return _guarded("straggler", lambda run: straggler(run.recorded), self)


_FINDINGS: dict[str, _Find] = {
    "outcome": lambda run: outcome(run.recorded, run.summary, run.standing, run.extent),
    "last_words": lambda run: last_words(run.recorded, run.standing),
    "last_lines": lambda run: last_lines(run.recorded, run.standing),
    "waits": lambda run: waits(run.recorded, run.standing),
    "hangs": lambda run: hangs(run.recorded, run.summary),
    "change": lambda run: change(run.recorded, run.changes, run.stragglers),
    "hidden_change": lambda run: hidden_changes(run.recorded, run.changes, is_live=goes_on(run.standing.state)),
    "straggler": lambda run: run.stragglers,
    "memory": lambda run: memory(run.recorded),
    "contradictions": lambda run: contradictions(run.recorded),
    "learning": lambda run: learning(run.recorded),
    "held_out": lambda run: held_out(run.recorded),
    "resumed": lambda run: resumed(run.recorded),
    "reward": lambda run: reward(run.recorded),
    "texts": lambda run: texts(run.recorded),
    "mismatch": lambda run: mismatch(run.recorded),
    "engines": lambda run: engines(run.recorded),
    "data": lambda run: data(run.recorded),
    "goodput": lambda run: goodput(run.recorded, run.goodput),
    "time_spent": lambda run: time_spent(run.shares),
    "recording": lambda run: recording(run.recorded),
    "environment": lambda run: environment(run.recorded),
}
"""All findings; of two that come equally early, the first one here. A new one is a file and a line here."""
_WITHOUT_STEPS = ("outcome", "last_words", "last_lines", "waits", "hangs", "recording")


def facts_of(run: RunReader, *, at_unix_nano: int | None = None) -> Facts:
    """Return the facts of a run: its summary, its findings, where its time went, and its main metrics.

    Args:
        run: The reader, of `otel_rl.open_run`.
        at_unix_nano: The time by which "live" and "hung" are decided; now by default.
    """
    return facts_of_recorded(RecordedRun(run, at_unix_nano))


def facts_of_recorded(recorded: RecordedRun) -> Facts:
    """Return the facts of a run of which something may have been read already."""
    basis = _Basis(recorded)
    if basis.recorded.steps is None:
        findings = ordered(_findings(basis, _WITHOUT_STEPS))
        return Facts(summary=basis.summary, findings=findings, cost=basis.cost)
    findings = ordered(_dated(basis.recorded, _findings(basis, _FINDINGS)))
    return Facts(
        summary=basis.summary,
        findings=findings,
        shares=basis.shares,
        goodput=basis.goodput,
        cost=basis.cost,
        metrics=basis.recorded.main.names,
    )


def cost_of_run(recorded: RecordedRun) -> Cost:
    """Return the cost of a run, without its other facts."""
    return _Basis(recorded).cost


def _summarized(recorded: RecordedRun, standing: Standing, extent: RunExtent, change: Shift | None) -> Summary:
    """Return the summary; `change` is the one of the time of a step that lasts."""
    place, members = recorded.place, recorded.members
    last = recorded.last_attempt
    worlds = [member.world_size for member in members if not member.role and member.attempt == last]
    return Summary(
        id=place.id or place.path.name,
        project=place.project,
        name=place.name,
        state=standing.state,
        reason=standing.reason,
        started_unix_nano=extent.started_unix_nano,
        last_unix_nano=extent.last_unix_nano,
        duration_s=extent.seconds(standing, recorded.at_unix_nano),
        first_step=-1 if extent.first_step is None else extent.first_step,
        last_step=-1 if extent.last_step is None else extent.last_step,
        steps=extent.steps,
        total_steps=extent.total_steps,
        ranks=max([recorded.ranks, *worlds]),
        hosts=extent.hosts,
        attempts=last + 1 if members else 0,
        resumed_at=extent.resumed_at,
        recent_step_seconds=extent.recent_step_seconds,
        step_seconds_before=None if change is None else change.before,
        changed_at_step=None if change is None else change.step,
    )


def _findings(basis: _Basis, names: Iterable[str]) -> list[Finding]:
    return [finding for name in names for finding in _guarded(name, _FINDINGS[name], basis)]


def _guarded(name: str, find: _Find, basis: _Basis) -> list[Finding]:
    """Return findings; one that fails must not hide the others from somebody with a broken run."""
    try:
        return find(basis)
    except Exception:
        logger.exception("the finding %r failed, and is left out", name)
        return []


def _dated(recorded: RecordedRun, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings with the times at which they began: those of their first steps, if they say none."""
    for finding in findings:
        steps = finding.evidence.steps
        since = recorded.ended_at(steps[0]) if steps and not finding.since_unix_nano else 0
        yield replace(finding, since_unix_nano=since) if since else finding

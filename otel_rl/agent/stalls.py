"""The hang watch over the processes of a run: events, a line in the log, a metric, and what `now.json` shows."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.agent.analysis.goodput import categories
from otel_rl.agent.analysis.hang_watch import HangWatch, Place, Process
from otel_rl.agent.hardware.measurement import Point, Work
from otel_rl.agent.hardware.work import work_of
from otel_rl.agent.steps.assemble import identified
from otel_rl.agent.steps.state import is_remote, machine_of
from otel_rl.archive.now import Stalled
from otel_rl.errors.sinks import log_of
from otel_rl.export import Event
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.agent.analysis.hang_watch import Change, Verdict
    from otel_rl.agent.output.gauges import Gauges
    from otel_rl.agent.steps.pipeline import Pipeline
    from otel_rl.agent.steps.state import Journal
    from otel_rl.export import AttributeValue
    from otel_rl.journal.records import SpanStarted

logger = log_of(__name__)
_NS = 1_000_000_000
_EVERY_S, _AT_ONCE = 1.0, 500
"""Seconds between two looks; with more than 500 processes it is more, because each takes about 10 µs."""
_STARTS_S = 1800.0
"""Seconds that a rank may take to its first step, or between two records if it marks no steps."""
_MOST_SHOWN = 64
_MOST_MEASURED = 32
"""Processes whose work is measured in one look: each takes about a millisecond."""


class Stalls:
    """Looks once a second at the processes of the last attempt; only an agent that makes rows does.

    Args:
        pipeline: Has what is known of the processes.
        gauges: The last measurements of the GPUs.
        after: Seconds after which each phase is late; 0 for the time that is learned.
        heard: Returns when another machine sent something last, in Unix nanoseconds; 0 if it is unknown.
    """

    def __init__(self, pipeline: Pipeline, gauges: Gauges, after: float, heard: Callable[[str], int]) -> None:
        self._reducer, self._vocabulary, self._gauges = pipeline.reducer, pipeline.vocabulary, gauges
        self._watch, self._heard = HangWatch(pipeline.reducer.usual, after), heard
        self._looked_at = -math.inf

    def look(self, now: int, steady: float) -> list[Event]:
        """Return an event for each verdict that is new or withdrawn; the times are the wall's and a steady clock's."""
        if steady - self._looked_at < max(_EVERY_S, len(self._reducer.state.journals) / _AT_ONCE):
            return []
        self._looked_at = steady
        journals = self._journals()
        processes = [one for name, journal in journals.items() if (one := self._process(name, journal)) is not None]
        suspects = self._watch.suspects(steady)[:_MOST_MEASURED]
        works = {name: self._work(name, journals[name]) for name in suspects if name in journals}
        changes = self._watch.look(processes, works, steady)
        of_living = [one for one in changes if one.verdict.name in journals]  # a death has an event of its own
        return [event for group in _groups(of_living, journals) for event in self._said(group, journals, now)]

    def shown(self) -> tuple[Stalled, ...]:
        """Return the verdicts that stand, the oldest ones first."""
        known = self._reducer.state.journals
        verdicts = sorted(self._standing(), key=lambda one: one.place.since)[:_MOST_SHOWN]
        return tuple(
            Stalled(
                kind=one.kind,
                scope=one.scope,
                role=known[one.name].started.role,
                rank=known[one.name].started.rank,
                host=known[one.name].started.host,
                phase=one.place.phase,
                part=one.place.part,
                since_unix_nano=one.place.since,
                usual_s=one.usual.seconds,
                deadline_s=one.usual.deadline,
                evidence=one.evidence,
                silent_since_unix_nano=one.silent_since,
            )
            for one in verdicts
        )

    def points(self) -> list[Point]:
        """Return the number of processes that do not go on, by phase, role, kind and scope."""
        known = self._reducer.state.journals
        counts: Counter[tuple[tuple[str, str | int], ...]] = Counter()
        for one in self._standing():
            role, phase = known[one.name].started.role, self._vocabulary.phase(one.place.phase)
            said: dict[str, str | int] = {semconv.STALL_KIND: one.kind, semconv.STALL_SCOPE: one.scope}
            said |= ({semconv.ROLE: role} if role else {}) | ({semconv.PHASE: phase} if phase else {})
            counts[tuple(sorted(said.items()))] += 1
        return [Point(semconv.METRIC_STALLED_PROCESSES, count, who) for who, count in counts.items()]

    def _standing(self) -> list[Verdict]:
        """Return the verdicts on processes that have not ended since the last look."""
        known = self._reducer.state.journals
        return [one for one in self._watch.verdicts if one.name in known and not known[one.name].over]

    def _journals(self) -> dict[str, Journal]:
        known = self._reducer.state.journals
        last = max((one.started.attempt for one in known.values()), default=0)
        return {name: one for name, one in known.items() if one.started.attempt == last and not one.over}

    def _process(self, name: str, journal: Journal) -> Process | None:
        """Return where a process is; `None` if it may wait there as long as it likes."""
        role, step = journal.started.role, journal.step
        progress = (step, 0) if step >= 0 else (journal.position, 1)
        if (span := _phase(journal)) is not None:
            if role and categories().get(self._vocabulary.phase(span.name)) == "idle":
                return None
            place = Place(progress, span.name, span.part, span.time)
            return Process(name, role, place, journal.last_time, arrived=self._arrived(name, journal))
        if role:
            return None  # it waits for work
        has_begun = journal.uses_steps and (step >= 0 or journal.step_ended_at > 0)
        place = Place(progress, "", "", journal.last_time)
        deadline = None if has_begun else _STARTS_S
        return Process(name, role, place, journal.last_time, deadline, self._arrived(name, journal))

    def _arrived(self, name: str, journal: Journal) -> int:
        """Return when the machine of a process sent something last; 0 for this one."""
        return (self._heard(machine_of(name)) or journal.last_time) if is_remote(name) else 0

    def _work(self, name: str, journal: Journal) -> Work:
        started = journal.started
        work = (None if is_remote(name) else work_of(started.pid, started.time)) or Work(math.nan)
        used = [self._gauges.utilization.get(one.uuid, 0.0) for one in journal.devices.values()]
        is_sampling = registry.stages().get(self._vocabulary.phase(journal.phase_now)) == "sample"
        tokens = self._reducer.engines.generated if is_sampling else 0.0
        return work._replace(gpu=max(used, default=0.0), tokens=tokens)

    def _said(self, group: Sequence[Change], journals: Mapping[str, Journal], now: int) -> list[Event]:
        """Return the event of processes that stalled or went on together, and log it."""
        verdict, is_withdrawn = group[0]
        journal = journals[verdict.name]
        ranks = [journals[one.verdict.name].started.rank for one in group][:_MOST_SHOWN]
        age = max(0, now - verdict.place.since) / _NS
        known: dict[str, AttributeValue | None] = {
            semconv.PHASE: verdict.place.phase,
            semconv.PHASE_PART: verdict.place.part,
            semconv.STALL_KIND: verdict.kind,
            semconv.STALL_SCOPE: verdict.scope,
            semconv.STALL_AGE: age,
            semconv.STALL_USUAL: verdict.usual.seconds,
            semconv.STALL_EVIDENCE: verdict.evidence,
            semconv.STALL_DEADLINE: verdict.usual.deadline,
            semconv.STALL_RANKS: [*ranks],
        }
        attributes = {name: value for name, value in known.items() if value is not None and value != ""}
        name = semconv.EVENT_PHASE_RESUMED if is_withdrawn else semconv.EVENT_PHASE_STALLED
        logger.warning("%s", _sentence(journal, len(group) - 1, verdict, age, is_withdrawn=is_withdrawn))
        step = verdict.place.progress[0]
        rank = journal.started.rank
        return identified(journal, Event(name, now, attributes, None if step < 0 else step, rank))


def _phase(journal: Journal) -> SpanStarted | None:
    """Return the open phase that a process is in: of those of several threads or tasks, the one that began first."""
    phases = [one for one in journal.spans.values() if one.kind is None]
    if len(phases) < 2:
        return phases[0] if phases else None
    parents = {one.parent_id for one in journal.spans.values()}
    return next((one for one in phases if one.span_id not in parents), phases[-1])


def _groups(changes: Sequence[Change], journals: Mapping[str, Journal]) -> list[list[Change]]:
    """Return the changes that are of one kind, at one place; the process that got there first comes first."""
    found: dict[tuple[object, ...], list[Change]] = {}
    for one in sorted(changes, key=lambda one: one.verdict.place.since):
        verdict, is_withdrawn = one
        started = journals[verdict.name].started
        where = started.host if verdict.silent_since else (started.role, verdict.place[:3])
        found.setdefault((where, verdict.kind, verdict.scope, is_withdrawn), []).append(one)
    return [*found.values()]


def _sentence(journal: Journal, others: int, verdict: Verdict, age: float, *, is_withdrawn: bool) -> str:
    who = f"{journal.label} and {others} more" if others else journal.label
    if verdict.kind == "silent":
        host = journal.started.host
        return f"{who}: {host} is heard again" if is_withdrawn else f"{who} on {host}: {verdict.evidence}"
    where = f"in {verdict.place.phase}" if verdict.place.phase else "outside of any phase"
    if is_withdrawn:
        return f"{who} went on after {age:.0f} s {where}"
    usual = "" if verdict.usual.seconds is None else f", usually {verdict.usual.seconds:.3g} s"
    verb = "is slow" if verdict.kind == "slow" else "hangs"
    job = "; no rank goes on" if (verdict.kind, verdict.scope) == ("hung", "job") else ""
    return f"{who} {verb} {where}: {age:.0f} s{usual}{f' ({verdict.evidence})' if verdict.evidence else ''}{job}"

"""The events of processes that stall or go on: one for all that do so at one place, with a line in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.assemble import identified
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.analyses.hang_watch.verdicts import HangVerdict, VerdictChange
    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import Journal

logger = log_of(__name__)
_NS = 1_000_000_000
MOST_SHOWN = 64
"""Processes that are named at once."""


def events_of(changes: Sequence[VerdictChange], journals: Mapping[str, Journal], now: int) -> list[Event]:
    """Return the events of verdicts that are new or withdrawn, and log them."""
    return [event for group in _groups(changes, journals) for event in _events(group, journals, now)]


def _groups(changes: Sequence[VerdictChange], journals: Mapping[str, Journal]) -> list[list[VerdictChange]]:
    """Return the changes that are of one kind, at one place; the process that got there first comes first."""
    groups: dict[tuple[object, ...], list[VerdictChange]] = {}
    for one in sorted(changes, key=lambda one: one.verdict.place.since):
        verdict, is_withdrawn = one
        started = journals[verdict.name].started
        where = started.host if verdict.silent_since else (started.role, verdict.place[:3])
        groups.setdefault((where, verdict.kind, verdict.scope, is_withdrawn), []).append(one)
    return [*groups.values()]


def _events(group: Sequence[VerdictChange], journals: Mapping[str, Journal], now: int) -> list[Event]:
    """Return the event of processes that stalled or went on together, and log it."""
    verdict, is_withdrawn = group[0]
    journal = journals[verdict.name]
    ranks = [journals[one.verdict.name].started.rank for one in group][:MOST_SHOWN]
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


def _sentence(journal: Journal, others: int, verdict: HangVerdict, age: float, *, is_withdrawn: bool) -> str:
    who = f"{journal.label} and {others} more" if others else journal.label
    if verdict.kind == "silent":
        host = journal.started.host
        return f"{who}: {host} is heard again" if is_withdrawn else f"{who} on {host}: {verdict.evidence}"
    where = f"in {verdict.place.phase}" if verdict.place.phase else "outside of any phase"
    took = wording.in_seconds(age)
    if is_withdrawn:
        return f"{who} went on after {took} {where}"
    usual = "" if verdict.usual.seconds is None else f", usually {wording.seconds(verdict.usual.seconds)}"
    verb = "is slow" if verdict.kind == "slow" else "hangs"
    job = "; no rank goes on" if (verdict.kind, verdict.scope) == ("hung", "job") else ""
    return f"{who} {verb} {where}: {took}{usual}{f' ({verdict.evidence})' if verdict.evidence else ''}{job}"

"""One trouble is one line, and no line is green that another one contradicts.

Each finding names its subject. One that says what others say, too, covers their subjects, and they become its
evidence. One that is good names the subjects that it needs to be well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.recorder.facts.order import is_worse, precedence
from otel_rl.recorder.facts.processes import process_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.look.insight.facts import Evidence, Finding

RUN, HANG, NONFINITE, DIVERGED, MEMORY = "run", "hang", "nonfinite", "diverged", "memory"
WEIGHTS, ENGINE_GAP, REWARD_PARTS = "weights", "engine gap", "reward parts"
"""Subjects: how the run ended, or how far it is; what stops or breaks it; and of what it learns."""


def of_process(role: str, rank: int) -> str:
    """Return the subject of a finding about a process that is gone."""
    return f"process:{process_name(role, rank)}"


def of_memory(role: str, rank: int) -> str:
    """Return the subject of a finding about memory that a process ran out of."""
    return f"{MEMORY}:{process_name(role, rank)}"


def of_metric(name: str) -> str:
    """Return the subject of a finding about the values of a metric."""
    return f"metric:{name}"


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each trouble, in the order of precedence."""
    return tuple(sorted(_without_contradictions(_merged([*findings])), key=_place))


def _place(finding: Finding) -> tuple[int, int, int]:
    return precedence(finding.severity, finding.sure, finding.since_unix_nano)


def _merged(findings: list[Finding]) -> list[Finding]:
    """Return findings of which none says what another one says: the surest, then the one that covers most, is kept."""
    kept: dict[int, Finding] = {}
    for number, finding in sorted(enumerate(findings), key=lambda each: _rank(each[1])):
        same = (
            place
            for place, other in kept.items()
            if finding.subject and finding.subject in (other.subject, *other.covers)
        )
        place = next(same, number)
        kept[place] = _joined(kept[place], finding) if place in kept else finding
    return [kept[number] for number in sorted(kept)]


def _rank(finding: Finding) -> tuple[object, ...]:
    return precedence("bad", finding.sure), -len(finding.covers), _place(finding)


def _joined(finding: Finding, other: Finding) -> Finding:
    """Return a finding with another one, which says the same, as its evidence."""
    said = () if other.sentence.removesuffix(".") in finding.sentence else (other.sentence,)
    return replace(
        finding,
        severity=other.severity if is_worse(other.severity, finding.severity) else finding.severity,
        advice=finding.advice or other.advice,
        evidence=_both(finding.evidence, other.evidence),
        also=(*finding.also, *said, *other.also),
        covers=tuple(dict.fromkeys((*finding.covers, other.subject, *other.covers))),
    )


def _both(first: Evidence, other: Evidence) -> Evidence:
    return replace(
        first,
        steps=first.steps or other.steps,
        ranks=first.ranks or (other.ranks if first.role in ("", other.role) else ()),
        role=first.role if first.ranks else other.role,
        names=tuple(dict.fromkeys((*first.names, *other.names))),
        phases=tuple(dict.fromkeys((*first.phases, *other.phases))),
    )


def _without_contradictions(findings: list[Finding]) -> list[Finding]:
    """Return findings of which none is good, or says what to do if all is well, while what it needs is not well."""
    bad = [finding for finding in findings if is_worse(finding.severity, "note")]
    troubles = {subject for finding in bad for subject in (finding.subject, *finding.covers)}
    return [_as_note(finding, troubles) for finding in findings]


def _as_note(finding: Finding, troubles: set[str]) -> Finding:
    if finding.severity not in ("good", "note"):
        return finding
    if any(_is_about(need, troubles) for need in finding.needs):
        return replace(finding, severity="note", advice="")
    is_over = finding.severity == "good" and _is_about(RUN, troubles)
    return replace(finding, severity="note") if is_over else finding


def _is_about(need: str, troubles: set[str]) -> bool:
    return any(trouble == need or trouble.startswith(f"{need}:") for trouble in troubles)

"""The one order of all that is said about a run: what is wrong first, and of that what is surest and newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.recorder.facts.states import Sure

Severity = Literal["bad", "warning", "note", "good"]
"""How much something matters: it needs somebody now, it costs, it is worth knowing, it is well."""
_SEVERITIES: tuple[Severity, ...] = ("bad", "warning", "note", "good")
_SURE: tuple[Sure, ...] = ("certain", "likely", "possible", "unknown")
Evidence = Literal["recorded", "printed", "kernel", "stack"]
"""The origin of a conclusion: what the trainer recorded, what its processes printed, what kernel and servers say, and
what a stack looks like.
"""
_EVIDENCE: tuple[Evidence, ...] = ("recorded", "printed", "kernel", "stack")


def precedence(severity: Severity, sure: Sure, since_unix_nano: int = 0) -> tuple[int, int, int]:
    """Return what sorts statements: wrong before the rest, certain before likely before possible, newest before older.

    A note and what is well have one place: neither needs anybody.

    Args:
        severity: How much it matters.
        sure: How sure it is.
        since_unix_nano: When it began, in Unix nanoseconds; 0 if it is about no moment.
    """
    return min(_SEVERITIES.index(severity), _SEVERITIES.index("note")), _SURE.index(sure), -since_unix_nano


def strength(sure: Sure, evidence: Evidence) -> tuple[int, int]:
    """Return what sorts causes: the surest first, and of equally sure ones those that were recorded.

    A stack looks alike in a process that owes something and in one that waits for work, so it comes last.
    """
    return _SURE.index(sure), _EVIDENCE.index(evidence)


def strongest(evidence: Iterable[Evidence]) -> Evidence:
    """Return the strongest of some evidence."""
    return min(evidence, key=_EVIDENCE.index)


def is_worse(severity: Severity, than: Severity) -> bool:
    """Return whether something matters more than something else."""
    return _SEVERITIES.index(severity) < _SEVERITIES.index(than)

"""The one order of all that is said about a run: what is wrong first, and of that what is surest and newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from otel_rl.recorder.facts.states import Sure

Severity = Literal["bad", "warning", "note", "good"]
"""How much something matters: it needs somebody now, it costs, it is worth knowing, it is well."""
_SEVERITIES: tuple[Severity, ...] = ("bad", "warning", "note", "good")
_SURE: tuple[Sure, ...] = ("certain", "likely", "possible", "unknown")


def precedence(severity: Severity, sure: Sure, since_unix_nano: int = 0) -> tuple[int, int, int]:
    """Return what sorts statements: wrong before the rest, certain before likely before possible, newest before older.

    A note and what is well have one place: neither needs anybody.

    Args:
        severity: How much it matters.
        sure: How sure it is.
        since_unix_nano: When it began, in Unix nanoseconds; 0 if it is about no moment.
    """
    return min(_SEVERITIES.index(severity), _SEVERITIES.index("note")), _SURE.index(sure), -since_unix_nano


def is_worse(severity: Severity, than: Severity) -> bool:
    """Return whether something matters more than something else."""
    return _SEVERITIES.index(severity) < _SEVERITIES.index(than)

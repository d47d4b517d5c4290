"""How processes and attempts end: normally, by an exception, by a signal, or without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from otel_rl.export import Ended, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.agent.steps.state import Journal

_SEVERITY: tuple[Outcome, ...] = get_args(Outcome)
"""Outcomes, the worst one last."""
_MOST_NAMED = 3
_LOST_EXIT_CODE = 255


def ended(attempt: int, journals: Sequence[Journal]) -> Ended:
    """Return the end of an attempt whose processes have all ended.

    The outcome is the worst of its ranks. Processes with a role count only if there are no ranks, since their creator
    may stop them. The error names the processes that failed, in order, including those with a role.
    """
    ranks = [journal for journal in journals if journal.is_rank] or journals
    worst = max(ranks, key=lambda journal: (_SEVERITY.index(journal.outcome), -journal.ended_at))
    time = max(journal.ended_at for journal in journals)
    if worst.outcome == "finished":
        return Ended(time, attempt, "finished")
    bad = in_order(journal for journal in journals if journal.outcome != "finished")
    named = [f"{journal.label}: {journal.error}" for journal in bad[:_MOST_NAMED]]
    if len(bad) > _MOST_NAMED:
        named.append(f"and {len(bad) - _MOST_NAMED} more")
    code = _LOST_EXIT_CODE if worst.outcome == "lost" else worst.exit_code or 1
    return Ended(time, attempt, worst.outcome, "; ".join(named), code)


def in_order(journals: Iterable[Journal]) -> list[Journal]:
    """Return processes in the order of their ends.

    Deaths that were detected at once have the same time; the process with the oldest last record comes first.
    """
    return sorted(journals, key=lambda one: (one.ended_at, one.last_time, one.started.role, one.started.rank))

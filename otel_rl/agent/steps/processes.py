"""Items about the processes of a run: one when a process begins, and another when more is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.export import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.agent.steps.state import Journal


def changed(journals: Iterable[Journal]) -> list[Process]:
    """Return the processes of which more is known than at the last call, also of an earlier agent."""
    found: list[Process] = []
    for journal in journals:
        known = (journal.started.attempt, len(journal.devices), journal.ended_at if journal.over else -1)
        if known != journal.exported:
            journal.exported = known
            found.append(_process(journal))
    return found


def _process(journal: Journal) -> Process:
    started = journal.started
    running = Process(
        attempt=started.attempt,
        role=started.role,
        rank=started.rank,
        world_size=started.world_size,
        host=started.host,
        pid=started.pid,
        started_unix_nano=started.time,
        devices=tuple(journal.devices[index].name for index in sorted(journal.devices)),
    )
    if not journal.over:
        return running
    return replace(
        running,
        ended_unix_nano=journal.ended_at,
        outcome=journal.outcome,
        error=journal.error,
        exit_code=journal.exit_code,
    )

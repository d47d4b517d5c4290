"""Items about the processes of a run: one when a process begins, and another when more is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.export import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.recorder.agent.steps.state import Journal


def changed(journals: Iterable[Journal]) -> list[Process]:
    """Return the processes of which more is known than at the last call, also of an earlier agent."""
    processes: list[Process] = []
    for journal in journals:
        end = (journal.ended_at, journal.order, journal.exit_code) if journal.over else (-1, 0, 0)
        known = (journal.started.attempt, len(journal.devices), *end)
        if known != journal.exported:
            journal.exported = known
            processes.append(_process(journal))
    return processes


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
        cause=journal.cause,
        ended_step=journal.ended_step,
        ended_phase=journal.ended_phase,
        down_order=journal.order,
    )

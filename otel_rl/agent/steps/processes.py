"""Who takes part: one item for each process when it begins, and again when more is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.export import Process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.agent.steps.state import Journal


class Processes:
    """The processes of the run as they were last exported. The next agent exports all of them again."""

    def __init__(self) -> None:
        self._known: dict[str, Process] = {}

    def changed(self, journals: Mapping[str, Journal]) -> list[Process]:
        """Return the processes that are not as they were at the last call."""
        found: list[Process] = []
        for name, journal in journals.items():
            one = _process(journal)
            if one != self._known.get(name):
                self._known[name] = one
                found.append(one)
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

"""Writes what is open now, for viewers of a run that is live, hung or dead."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.archive.now import ExporterNow, Now, OpenPhase, ProcessNow, place_of
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.agent.output.exporters import Exporters
    from otel_rl.agent.steps.state import Journal
    from otel_rl.setup.agent_start import AgentStatus
    from otel_rl.setup.directory import Manifest, RunDirectory

_EVERY_S = 1.0
_AT_LEAST_EVERY_S = 10.0
_SHARE = 50
"""At most one part of this many of the agent's time is spent here."""


class Present:
    """Replaces `now.json` at most once a second while something changes, and every 10 s otherwise.

    A run without an archive has no such file.
    """

    def __init__(self, directory: RunDirectory, manifest: Manifest) -> None:
        self._manifest = manifest
        has_archive = any(name == "archive" for name, _ in manifest.exporters)
        self._place = place_of(directory.path, directory.host) if has_archive else None
        self._written: Now | None = None
        self._written_at, self._pause = 0.0, _EVERY_S

    def show(self, journals: Iterable[Journal], exporters: Exporters, status: AgentStatus) -> None:
        """Write the state of the run, if it is due; the last state is always written."""
        began = time.monotonic()
        is_last = status.state == "ended"
        if self._place is None or (began < self._written_at + self._pause and not is_last):
            return
        now = self._state(journals, exporters, status)
        same = self._written is not None and msgspec.structs.replace(self._written, time_unix_nano=0) == now
        if same and not is_last and began < self._written_at + _AT_LEAST_EVERY_S:
            return
        now = msgspec.structs.replace(now, time_unix_nano=time.time_ns())
        with contextlib.suppress(OSError):  # a full disk: it is written again a second later
            make_directory(self._place.parent.parent)
            make_directory(self._place.parent)
            write_atomically(self._place, msgspec.json.encode(now))
            self._written = now
        self._written_at = time.monotonic()
        self._pause = max(_EVERY_S, _SHARE * (self._written_at - began))

    def _state(self, journals: Iterable[Journal], exporters: Exporters, status: AgentStatus) -> Now:
        known = list(journals)
        last = max((one.started.attempt for one in known), default=0)
        manifest = self._manifest
        return Now(
            time_unix_nano=0,
            id=manifest.id,
            project=manifest.project,
            name=manifest.name,
            pid=os.getpid(),
            state=status.state,
            processes=[_process(one) for one in known if one.started.attempt == last],
            exporters=[
                ExporterNow(one.label, one.taken, one.backlog, one.failures, status.last_error.get(one.label, ""))
                for one in exporters.threads
            ],
            lost=status.lost,
            warnings=status.warnings,
            metrics=status.prometheus,
        )


def _process(journal: Journal) -> ProcessNow:
    started = journal.started
    phases = tuple(OpenPhase(span.name, span.time, span.part) for span in journal.spans.values() if span.kind is None)
    return ProcessNow(
        attempt=started.attempt,
        role=started.role,
        rank=started.rank,
        host=started.host,
        pid=started.pid,
        step=None if journal.step < 0 else journal.step,
        step_started_unix_nano=None if journal.step < 0 else journal.began_step_at,
        phases=() if journal.over else phases,
        last_unix_nano=journal.last_time,
        outcome=journal.outcome if journal.over else None,
    )

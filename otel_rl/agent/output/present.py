"""Writes what is open now, for viewers of a run that is live, hung or dead."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.agent.output.recent import Recent
from otel_rl.archive.now import ExporterNow, Now, OpenPhase, ProcessNow, Progress, place_of
from otel_rl.errors.redaction import redacted
from otel_rl.journal.atomic_files import read_json, write_atomically
from otel_rl.journal.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from otel_rl.agent.output.exporters import Exporters
    from otel_rl.agent.output.gauges import Gauges
    from otel_rl.agent.output.wait_watch import WaitWatch
    from otel_rl.agent.steps.pipeline import Pipeline
    from otel_rl.agent.steps.state import Journal
    from otel_rl.archive.now import Stalled
    from otel_rl.export import Item
    from otel_rl.setup.agent_start import AgentStatus
    from otel_rl.setup.directory import Manifest, RunDirectory

_EVERY_S = 1.0
_AT_LEAST_EVERY_S = 10.0
_LAST_WITHIN_S = 5.0
_SHARE = 50
"""At most one part of this many of the agent's time is spent here."""
_MOST_PHASES = 64
"""Open phases of a process that are written, the innermost ones."""


class Present:
    """Replaces `now.json` at most once a second while something changes, at new verdicts, and every 10 s otherwise.

    A thread writes it, because a network file system that hangs must not hang the agent. A run without an archive has
    no such file. With `of_archive` the items come from the archive of another machine, whose file stays.
    """

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Manifest,
        pipeline: Pipeline,
        gauges: Gauges,
        watch: WaitWatch | None,
        stalled: Callable[[], tuple[Stalled, ...]],
        *,
        of_archive: bool,
    ) -> None:
        self._manifest, self._gauges, self._watch, self._stalled = manifest, gauges, watch, stalled
        state = pipeline.reducer.state
        self._journals: Mapping[str, Journal] = state.journals
        self._steps: Mapping[int, Mapping[int, object]] = state.steps
        writes = not of_archive and any(name == "archive" for name, _ in manifest.exporters)
        self._place = place_of(directory.path, directory.host) if writes else None
        before = None if self._place is None else read_json(self._place, Now)
        progress = before.progress if before is not None and before.id == manifest.id else Progress()
        self._recent = Recent(pipeline.reducer.goodput, pipeline.vocabulary, progress)
        self._shown: Now | None = None
        self._reasons: frozenset[object] = frozenset()
        self._shown_at, self._pause = 0.0, _EVERY_S
        self._content, self._has_ended = b"", False
        self._is_new = threading.Event()
        self._writer: threading.Thread | None = None

    def add(self, items: Iterable[Item]) -> None:
        """Take what the reducer has made."""
        if self._place is not None:
            self._recent.add(items)

    def show(self, exporters: Exporters, status: AgentStatus) -> None:
        """Have the state of the run written, if it is due; wait at most 5 s for the last one."""
        began = time.monotonic()
        is_last = status.state == "ended"
        reasons = frozenset() if self._watch is None else self._watch.reasons
        is_due = is_last or began >= self._shown_at + self._pause or reasons != self._reasons
        if self._place is None or not is_due:
            return
        now = self._state(exporters, status)
        if now == self._shown and not is_last and began < self._shown_at + _AT_LEAST_EVERY_S:
            return
        self._content = msgspec.json.encode(msgspec.structs.replace(now, time_unix_nano=time.time_ns()))
        self._shown, self._has_ended, self._reasons = now, is_last, reasons
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, args=(self._place,), name="otel-rl-now", daemon=True)
            self._writer.start()
        self._is_new.set()
        self._shown_at = time.monotonic()
        self._pause = max(_EVERY_S, _SHARE * (self._shown_at - began))
        if is_last:
            self._writer.join(_LAST_WITHIN_S)

    def _write(self, place: Path) -> None:
        while self._is_new.wait():
            self._is_new.clear()
            is_last, content = self._has_ended, self._content
            with contextlib.suppress(OSError):  # a full disk: it is written again within 10 s
                make_directory(place.parent.parent)
                make_directory(place.parent)
                write_atomically(place, content)
            if is_last:
                return

    def _state(self, exporters: Exporters, status: AgentStatus) -> Now:
        known, manifest = self._journals, self._manifest
        last = max((one.started.attempt for one in known.values()), default=0)
        return Now(
            time_unix_nano=0,
            id=manifest.id,
            project=manifest.project,
            name=manifest.name,
            pid=os.getpid(),
            state=status.state,
            processes=[self._process(name, one) for name, one in known.items() if one.started.attempt == last],
            open_steps=sum(map(len, self._steps.values())),
            exporters=[
                ExporterNow(
                    *(one.label, one.taken, one.backlog, one.failures),
                    last_error=status.last_error.get(one.label, ""),
                    delivered=one.passed,
                )
                for one in exporters.threads
            ],
            lost=status.lost,
            warnings=status.warnings,
            metrics=status.prometheus,
            started_unix_nano=min((one.started.time for one in known.values()), default=None),
            progress=self._recent.progress(),
            devices=self._gauges.now(),
            waits=() if self._watch is None else self._watch.waits,
            stalled=self._stalled(),
        )

    def _process(self, name: str, journal: Journal) -> ProcessNow:
        started, spans = journal.started, journal.spans.values()
        phases = tuple(OpenPhase(span.name, span.time, span.part) for span in spans if span.kind is None)
        return ProcessNow(
            attempt=started.attempt,
            role=started.role,
            rank=started.rank,
            host=started.host,
            pid=started.pid,
            step=None if journal.step < 0 else journal.step,
            step_started_unix_nano=None if journal.step < 0 else journal.began_step_at,
            phases=() if journal.over else phases[-_MOST_PHASES:],
            last_unix_nano=journal.last_time,
            outcome=journal.outcome if journal.over else None,
            error=redacted(journal.error) if journal.over else "",
            last=self._recent.last_step(name),
            dropped={} if journal.over else journal.dropped,
            dropped_unix_nano=journal.dropped_at,
        )

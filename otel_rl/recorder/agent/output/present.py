"""Writes what is open now, for viewers of a run that is live, hung or dead."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.agent.output.recent import Recent
from otel_rl.recorder.archive.now import ExporterNow, Now, PhaseNow, ProcessNow, Progress, place_of
from otel_rl.recorder.archive.reports import known_process
from otel_rl.recorder.facts.standing import down_before
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from otel_rl.export import Item
    from otel_rl.recorder.agent.output.exporters import Exporters
    from otel_rl.recorder.agent.output.gauges import Gauges
    from otel_rl.recorder.agent.steps.pipeline import Pipeline
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.archive.now import PhaseTime
    from otel_rl.recorder.directory.agent_start import AgentStatus
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory
    from otel_rl.recorder.facts.signs import KnownProcess

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
        *,
        of_archive: bool,
    ) -> None:
        self._manifest, self._gauges, self._analyses = manifest, gauges, pipeline.analyses
        state = pipeline.reducer.state
        self._journals: Mapping[str, Journal] = state.journals
        self._steps: Mapping[int, Mapping[int, object]] = state.steps
        writes = not of_archive and any(name == "archive" for name, _ in manifest.exporters)
        self._place = place_of(directory.path, directory.host) if writes else None
        before = None if self._place is None else read_json(self._place, Now)
        if before is not None and before.id == manifest.id:
            self._recent = Recent(pipeline.vocabulary, before.progress, before.last_rows)
        else:
            self._recent = Recent(pipeline.vocabulary, Progress())
        self._shown: Now | None = None
        self._urgent: object = ()
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
        urgent = self._analyses.urgent
        is_due = is_last or began >= self._shown_at + self._pause or urgent != self._urgent
        if self._place is None or not is_due:
            return
        now = self.state(exporters, status)
        if now == self._shown and not is_last and began < self._shown_at + _AT_LEAST_EVERY_S:
            return
        self._content = msgspec.json.encode(msgspec.structs.replace(now, time_unix_nano=time.time_ns()))
        self._shown, self._has_ended, self._urgent = now, is_last, urgent
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
            # Cleared before the content is read: what is set in between is written in the next turn, and not lost.
            self._is_new.clear()
            # `show` sets the flag last, and it is read first: if it is true, this is the last content.
            is_last, content = self._has_ended, self._content
            with contextlib.suppress(OSError):  # a full disk: it is written again within 10 s
                make_directory(place.parent.parent)
                make_directory(place.parent)
                write_atomically(place, content)
            if is_last:
                return

    def state(self, exporters: Exporters, status: AgentStatus) -> Now:
        """Return the state of the run, without the time."""
        known, manifest, shown = self._journals, self._manifest, self._analyses.now()
        times, usual = shown.pop("last", {}), shown.pop("usual", {})
        last = max((one.started.attempt for one in known.values()), default=0)
        return Now(
            time_unix_nano=0,
            id=manifest.id,
            project=manifest.project,
            name=manifest.name,
            pid=os.getpid(),
            state=status.state,
            processes=[
                self._process(one, times.get(name, ()), usual.get(name))
                for name, one in known.items()
                if one.started.attempt == last
            ],
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
            progress=self._recent.progress(shown.pop("recent_shares", ())),
            last_rows=self._recent.last_rows,
            devices=self._gauges.now(),
            waits=shown.pop("waits", ()),
            stalled=shown.pop("stalled", ()),
            made=shown.pop("made", ()),
            analyses=shown,
            before=self._before(last),
        )

    def _before(self, attempt: int) -> KnownProcess | None:
        """Return the first process that ended badly in an earlier attempt, of the last one in which one did."""
        earlier = [one for one in self._journals.values() if one.over and one.started.attempt < attempt]
        return down_before((known_process(self._process(one, ())) for one in earlier), attempt)

    def _process(self, journal: Journal, last: tuple[PhaseTime, ...], usual: float | None = None) -> ProcessNow:
        started, spans = journal.started, journal.spans.values()
        phases = tuple(PhaseNow(span.name, span.time, span.part) for span in spans if span.kind is None)
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
            last=last,
            usual_s=usual,
            dropped={} if journal.over else journal.dropped,
            dropped_unix_nano=journal.dropped_at,
            ended_unix_nano=journal.ended_at if journal.over else None,
            exit_code=journal.exit_code,
            cause=journal.cause,
            ended_step=journal.ended_step,
            ended_phase=journal.ended_phase,
            down_order=journal.order,
        )

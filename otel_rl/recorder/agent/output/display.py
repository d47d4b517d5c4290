"""Updates the metrics of the run: new items in each turn of the loop, and totals every 2 s."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.analysis import Point
from otel_rl.recorder.agent.output import presence
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.files.atomic_files import disk_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.output.exporters import Exporters
    from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
    from otel_rl.recorder.agent.steps.pipeline import Pipeline
    from otel_rl.recorder.agent.steps.reduced import Reduced
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.delivery.quarantine import Quarantine
    from otel_rl.recorder.directory.directory import RunDirectory

_TOTALS_NS = 2_000_000_000
_REASONS = ("torn_bytes", "retention", "undecodable", "outbox_retention", "outbox_damaged", "refused_by_exporter")
"""Losses that are exposed as 0 from the start: `rate()` needs a counter to exist before it rises."""


class Display:
    """Feeds the instruments; if one part fails, the others are still shown, and the quarantine counts it.

    If this agent `sends` to a head, the head exposes the run-wide metrics, so this agent does not. `stalled` returns
    the numbers of processes that do not go on, and of waits that can never end.
    """

    def __init__(
        self,
        instruments: OtelMetrics,
        pipeline: Pipeline,
        directory: RunDirectory,
        quarantine: Quarantine,
        *,
        sends: bool,
    ) -> None:
        self._instruments, self._pipeline = instruments, pipeline
        self._directory, self._sends = directory, sends
        self._guard = partial(quarantine.guard, source="metrics")
        self._totals_shown_at = 0

    def show(self, made: Reduced, now: int) -> None:
        """Show the output of the reducer; `now` is in Unix nanoseconds."""
        reducer, traces = self._pipeline.reducer, self._pipeline.traces
        if made.items:
            self._instruments.name_devices(reducer.state.labels)
        if not self._sends:
            with self._guard("showing of rows"):
                self._instruments.show(made.items, traces.keeps)
            with self._guard("showing of trajectories"):
                self._instruments.show_trajectories(made.items, traces.keeps)
        own = {name: one for name, one in reducer.state.journals.items() if not is_remote(name)}
        heartbeat = Point(semconv.METRIC_TELEMETRY_HEARTBEAT_TIMESTAMP, now / 1e9)
        with self._guard("showing of the heartbeat"):
            self._instruments.show_points("heartbeat", [heartbeat])
        with self._guard("showing of totals"):
            self._show_totals(own, now)
        with self._guard("showing of phases"):
            self._instruments.show_phases(made.phases, traces.keeps)
        with self._guard("showing of processes"):
            self._instruments.show_journals(own.values())

    def show_delivery(self, exporters: Exporters, dropped: Mapping[str, int]) -> None:
        """Show what was delivered, and what was dropped or lost, by reason."""
        show, threads, named = self._instruments.show_totals, exporters.threads, exporters.by_name
        with self._guard("showing of delivery"):
            show(semconv.METRIC_TELEMETRY_DELIVERED, semconv.EXPORTER, {d.label: d.taken for d in threads})
            show(semconv.METRIC_TELEMETRY_FAILURES, semconv.EXPORTER, dict.fromkeys(named, 0))  # before the first
            for name, one in named.items():
                show(semconv.METRIC_TELEMETRY_FAILURES, semconv.ERROR_TYPE, one.causes, ((semconv.EXPORTER, name),))
            show(semconv.METRIC_TELEMETRY_DROPPED, semconv.ERROR_TYPE, dict.fromkeys(_REASONS, 0) | dict(dropped))
            now = time.monotonic()
            lags = [Point(semconv.METRIC_TELEMETRY_LAG, d.lag(now), ((semconv.EXPORTER, d.label),)) for d in threads]
            self._instruments.show_points("delivery", lags)

    def _show_totals(self, own: Mapping[str, Journal], now: int) -> None:
        """Show the totals over all steps, and the state of this machine's processes, every 2 s."""
        if now - self._totals_shown_at <= _TOTALS_NS:
            return
        self._totals_shown_at = now
        reducer, show = self._pipeline.reducer, self._instruments.show_points
        show("presence", presence.points(own.values(), self._pipeline.vocabulary, now))
        show("storage", self._storage())
        show("names", [Point(semconv.METRIC_TELEMETRY_RENAMED, reducer.names.count)])
        for name, points in reducer.analyses.points(of_run=not self._sends):
            with self._guard(f"showing of {name}"):
                show(f"analysis {name}", points)
        if not self._sends:
            self._instruments.show_processes(reducer.state.journals.values())

    def _storage(self) -> list[Point]:
        places = {"journal": self._directory.journals, "outbox": self._directory.outbox}
        return [
            Point(semconv.METRIC_TELEMETRY_STORAGE, disk_usage(path), ((semconv.TELEMETRY_FILE, name),))
            for name, path in places.items()
        ]

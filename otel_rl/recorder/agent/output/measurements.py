"""Passes measurements on to the instruments, the trackers and the analyses."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.export import Machine
from otel_rl.recorder.agent.hardware.processes import TrainerProcess
from otel_rl.recorder.agent.output.gauges import Gauges
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.settings.launcher import node_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.analysis import Measurement, Point
    from otel_rl.export import Item
    from otel_rl.recorder.agent.hardware.poller import Poller
    from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
    from otel_rl.recorder.agent.steps.analyses import Analyses
    from otel_rl.recorder.agent.steps.state import Journal

_NS = 1_000_000_000
_LOOK_EVERY_NS = 250_000_000
_BEAT_S = 10.0
"""The longest time in seconds in which a machine whose processes live sends nothing to its head."""
_GPU_NAMES = {
    semconv.METRIC_HW_GPU_UTILIZATION: ("util", 100.0),
    semconv.METRIC_HW_GPU_MEMORY_USAGE: ("mem_gb", 2.0**-30),
    semconv.METRIC_HW_POWER: ("power_w", 1.0),
    semconv.METRIC_HW_TEMPERATURE: ("temp_c", 1.0),
}
"""Names of GPU measurements in trackers, and the factor from the registry's unit; NeMo-RL defines the first two."""
_HOST_NAMES = {
    semconv.METRIC_SYSTEM_MEMORY_USAGE: ("mem_gb", 2.0**-30),
    semconv.METRIC_SYSTEM_MEMORY_LIMIT: ("mem_total_gb", 2.0**-30),
}


class Measurements:
    """Passes measurements on, once per turn of the agent's loop, and to trackers every `flush_interval` seconds.

    Args:
        poller: Measures.
        instruments: Get each measurement.
        analyses: Get each measurement too.
        flush_interval: Seconds.
        section: The first part of names in trackers.
        sends: If true, they go to the head, which also learns from them that this machine lives: without any, an empty
            one is sent.

    Attributes:
        gauges: The last of them.
    """

    def __init__(
        self,
        poller: Poller,
        instruments: OtelMetrics,
        analyses: Analyses,
        flush_interval: float,
        section: str,
        *,
        sends: bool = False,
    ) -> None:
        self._poller, self._instruments, self._analyses = poller, instruments, analyses
        self._flush_ns = round((min(flush_interval, _BEAT_S) if sends else flush_interval) * _NS)
        self._sends = sends
        self._prefix = f"{section}/node.{node_number(os.environ)}"
        self._waiting: dict[int, Machine] = {}
        self._flushed_at = self._looked_at = 0
        self.gauges = Gauges(socket.gethostname())

    def drop(self) -> None:
        """Forget the measurements since the last call: nobody records any more."""
        self._poller.pop()

    def collect(self, journals: Mapping[str, Journal], now: int, *, all_of_it: bool = False) -> list[Item]:
        """Pass on the measurements since the last call; return the items for trackers, with `all_of_it` every one."""
        if now - self._looked_at < _LOOK_EVERY_NS and not all_of_it:
            return []
        self._looked_at = now
        live = {name: journal for name, journal in journals.items() if not journal.over and not is_remote(name)}
        self._poller.watch([_watched(journal) for journal in live.values()])
        measurements = self._poller.pop()
        began = min((journal.started.time for journal in journals.values()), default=now)
        for measurement in measurements:
            self._pass_on(measurement, began)
        if measurements:
            self._analyses.measured(measurements)
        self._instruments.show_failures(self._poller.failures)
        if not all_of_it and now - self._flushed_at < self._flush_ns:
            return []
        self._flushed_at = now
        left, self._waiting = self._waiting, {}
        if self._sends and live and not left:
            return [Machine(max(0, now - began) // _NS, now, {})]
        return [*left.values()]

    def _pass_on(self, measurement: Measurement, began: int) -> None:
        self._instruments.show_points(measurement.probe, measurement.points)
        self.gauges.measured(measurement.points)
        values = self._named(measurement.points)
        if values:
            second = max(0, measurement.time - began) // _NS
            known = self._waiting.get(second)
            self._waiting[second] = Machine(second, measurement.time, {**(known.values if known else {}), **values})

    def _named(self, points: Iterable[Point]) -> dict[str, int | float]:
        """Return the values for trackers; there are none of MIG instances."""
        values: dict[str, int | float] = {}
        for point in points:
            attributes = dict(point.attributes)
            if point.metric in _GPU_NAMES and semconv.HW_PARENT not in attributes:
                name, factor = _GPU_NAMES[point.metric]
                values[f"{self._prefix}.gpu.{attributes[semconv.GPU_INDEX]}.{name}"] = point.value * factor
            elif point.metric in _HOST_NAMES:
                name, factor = _HOST_NAMES[point.metric]
                values[f"{self._prefix}.{name}"] = point.value * factor
        return values


def _watched(journal: Journal) -> TrainerProcess:
    started = journal.started
    return TrainerProcess(started.pid, started.rank, started.role, started.visible_devices, started.time)

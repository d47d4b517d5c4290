"""Passes measurements on to the instruments, the trackers, the memory ledger and the usage of GPUs."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.agent.analysis.gpu_usage import GpuUsage
from otel_rl.agent.analysis.memory_ledger import OUTSIDE, Account
from otel_rl.agent.hardware.measurement import Watched
from otel_rl.agent.output.gauges import Gauges
from otel_rl.agent.steps.forensics import HostMemory
from otel_rl.agent.steps.state import is_remote
from otel_rl.export import Machine, Row
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.setup.launcher import node_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.agent.hardware.measurement import Measurement, Point
    from otel_rl.agent.hardware.poller import Poller
    from otel_rl.agent.output.otel_metrics import OtelMetrics
    from otel_rl.agent.steps.forensics import Forensics
    from otel_rl.agent.steps.state import Journal
    from otel_rl.export import Item
    from otel_rl.semconv.vocabulary import Vocabulary

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
        forensics: Gets what is in use.
        vocabulary: Names of phases and metrics.
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
        forensics: Forensics,
        vocabulary: Vocabulary,
        flush_interval: float,
        section: str,
        *,
        sends: bool = False,
    ) -> None:
        self._poller, self._instruments = poller, instruments
        self._forensics, self._vocabulary = forensics, vocabulary
        self._flush_ns = round((min(flush_interval, _BEAT_S) if sends else flush_interval) * _NS)
        self._sends = sends
        self._prefix = f"{section}/node.{node_number(os.environ)}"
        self._usage = GpuUsage()
        self._waiting: dict[int, Machine] = {}
        self._flushed_at = self._looked_at = 0
        self._host: dict[str, float] = {}
        self.gauges = Gauges(socket.gethostname())

    def drop(self) -> None:
        """Forget the measurements since the last call: nobody records any more."""
        self._poller.pop()

    def collect(
        self, journals: Mapping[str, Journal], items: Iterable[Item], now: int, *, all_of_it: bool = False
    ) -> list[Item]:
        """Pass on the measurements since the last call; return the items for trackers, with `all_of_it` every one.

        `items` are those that the reducer made since the last call.
        """
        for item in items:
            if isinstance(item, Row) and not item.late and self._usage.knows_energy:
                self._usage.step_ended(self._tokens(item))
        if now - self._looked_at < _LOOK_EVERY_NS and not all_of_it:
            return []
        self._looked_at = now
        live = {name: journal for name, journal in journals.items() if not journal.over and not is_remote(name)}
        self._poller.watch([_watched(journal) for journal in live.values()])
        measurements = self._poller.pop()
        began = min((journal.started.time for journal in journals.values()), default=now)
        for measurement in measurements:
            self._pass_on(measurement, live, began)
        if measurements:
            self._instruments.show_points("usage", [*self._usage.idle(), *self._usage.energy()])
        self._instruments.show_failures(self._poller.failures)
        if not all_of_it and now - self._flushed_at < self._flush_ns:
            return []
        self._flushed_at = now
        left, self._waiting = self._waiting, {}
        if self._sends and live and not left:
            return [Machine(max(0, now - began) // _NS, now, {})]
        return [*left.values()]

    def _pass_on(self, measurement: Measurement, live: Mapping[str, Journal], began: int) -> None:
        self._instruments.show_points(measurement.probe, measurement.points)
        self._usage.measured(measurement, lambda device: self._phase_on(device, live))
        self._charge(measurement.points, live)
        self.gauges.measured(measurement.points)
        self._host |= {point.metric: point.value for point in measurement.points if not point.attributes}
        used = [point.value for point in measurement.points if point.metric == semconv.METRIC_SYSTEM_MEMORY_USAGE]
        if used:
            self._forensics.host = self._room(used[0])
        values = self._named(measurement.points)
        if values:
            second = max(0, measurement.time - began) // _NS
            known = self._waiting.get(second)
            self._waiting[second] = Machine(second, measurement.time, {**(known.values if known else {}), **values})

    def _charge(self, points: Iterable[Point], live: Mapping[str, Journal]) -> None:
        """Add the memory of process trees to the ledger, under the phase that their trainer is in."""
        names = {(journal.started.rank, journal.started.role): name for name, journal in live.items()}
        for point in points:
            attributes = dict(point.attributes)
            if point.metric == semconv.METRIC_PROCESS_MEMORY_USAGE and semconv.RANK in attributes:
                name = names.get((int(attributes[semconv.RANK]), str(attributes.get(semconv.ROLE, ""))))
                if name is not None:
                    phase = live[name].phase_now or OUTSIDE
                    self._forensics.ledger.charge(Account(name, "host_tree"), phase, point.value)

    def _room(self, used: float) -> HostMemory:
        """Return the memory of the host, or of the cgroup where that leaves less."""
        limit = self._host.get(semconv.METRIC_SYSTEM_MEMORY_LIMIT, 0.0)
        host = HostMemory(limit, limit - used)
        limit = self._host.get(semconv.METRIC_CONTAINER_MEMORY_LIMIT, 0.0)
        cgroup = HostMemory(limit, limit - self._host.get(semconv.METRIC_CONTAINER_MEMORY_USAGE, 0.0))
        return min(
            (room for room in (host, cgroup) if room.limit > 0), key=lambda room: room.left, default=HostMemory()
        )

    def _phase_on(self, device: str, live: Mapping[str, Journal]) -> str:
        """Return the phase of the process that uses the device, or of the first process if the user is unknown."""
        users = [journal for journal in live.values() if device in {seen.uuid for seen in journal.devices.values()}]
        return self._vocabulary.phase(next((j.phase_now for j in users or live.values() if j.phase_now), ""))

    def _tokens(self, row: Row) -> float:
        known = {
            r.metric: v * r.factor
            for n, v in row.values.items()
            if (r := self._vocabulary.read(n)) and not r.attributes
        }
        rate = known.get(semconv.METRIC_TOKENS_RATE, 0.0) * row.values.get(STEP_TIME, 0.0)
        return known.get(semconv.METRIC_TRAIN_STEP_TOKENS, rate)

    def _named(self, points: Iterable[Point]) -> dict[str, int | float]:
        """Return the values for trackers; there are none of MIG instances."""
        found: dict[str, int | float] = {}
        for point in points:
            attributes = dict(point.attributes)
            if point.metric in _GPU_NAMES and semconv.HW_PARENT not in attributes:
                name, factor = _GPU_NAMES[point.metric]
                found[f"{self._prefix}.gpu.{attributes[semconv.GPU_INDEX]}.{name}"] = point.value * factor
            elif point.metric in _HOST_NAMES:
                name, factor = _HOST_NAMES[point.metric]
                found[f"{self._prefix}.{name}"] = point.value * factor
        return found


def _watched(journal: Journal) -> Watched:
    started = journal.started
    return Watched(started.pid, started.rank, started.role, started.visible_devices, started.time)

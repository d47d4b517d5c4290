"""The load of inference servers in each step: KV cache, requests, preemptions, hits of the prefix cache."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.recorder.agent.input.engine_pages import GENERATED, PREFIX_HITS, PREFIX_QUERIES, Load

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 100_000
"""Values that are kept for a step that does not end, and totals of counters; the oldest are dropped.

A measurement of an engine has 6. A server whose engines have other names each time would have more and more totals.
"""
_GAUGES = {
    semconv.METRIC_ENGINE_KV_CACHE_UTILIZATION: "engine/kv_cache_utilization",
    semconv.METRIC_ENGINE_REQUESTS_RUNNING: "engine/requests_running",
    semconv.METRIC_ENGINE_REQUESTS_WAITING: "engine/requests_waiting",
}
"""Metrics whose mean and maximum are in a row, with their names in trackers."""
_PREEMPTIONS, _HIT_RATE = "engine/preemptions", "engine/prefix_cache_hit_rate"


class EngineLoad:
    """Relates measurements of inference servers to steps; each measurement counts in one step at most.

    A counter contributes its rise since the measurement before. `hear` may be called from any thread.

    Attributes:
        generated: Tokens that all engines generated, as far as it was measured.
    """

    def __init__(self) -> None:
        self._heard: deque[tuple[int, Load]] = deque(maxlen=_MOST)
        self._totals: dict[tuple[str, str], float] = {}
        self._servers: set[str] = set()
        self.generated = 0.0

    def hear(self, time: int, loads: Iterable[Load]) -> None:
        """Add the values of one server at a time (Unix nanoseconds)."""
        finite = [load for load in loads if math.isfinite(load.value) and load.quantity != GENERATED]
        for load in loads:
            if load.quantity == GENERATED and math.isfinite(load.value):
                self.generated += self._rise(load) or 0.0
        for load in finite:
            if load.quantity in _GAUGES:
                self._heard.append((time, load))
            elif (rise := self._rise(load)) is not None:
                self._heard.append((time, load._replace(value=rise)))
        self._servers.update(load.server for load in finite)

    def during(self, begin: int, end: int) -> dict[str, float]:
        """Return the columns of a step between two times (Unix nanoseconds), over all engines.

        Measurements before the end of the step are then forgotten, those before its beginning too. A hit rate is the
        fraction of looked-up tokens that were cached; without look-ups there is none.
        """
        of_step: dict[str, list[float]] = {}
        for time, load in self._until(end):
            if time >= begin:
                of_step.setdefault(load.quantity, []).append(load.value)
        columns: dict[str, float] = {}
        for metric, name in _GAUGES.items():
            if values := of_step.get(metric):
                columns[f"{name}/mean"] = sum(values) / len(values)
                columns[f"{name}/max"] = max(values)
        if preempted := of_step.get(semconv.METRIC_ENGINE_PREEMPTIONS):
            columns[_PREEMPTIONS] = sum(preempted)
        if looked_up := sum(of_step.get(PREFIX_QUERIES, ())):
            columns[_HIT_RATE] = sum(of_step.get(PREFIX_HITS, ())) / looked_up
        return columns

    def _rise(self, load: Load) -> float | None:
        """Return by how much a counter rose; `None` if nothing is known of its server yet."""
        key = load.quantity, load.engine
        # SGLang has no series before its first event, such as the first preemption.
        before = self._totals.pop(key, 0.0 if load.server in self._servers else None)
        self._totals[key] = load.value  # behind all others
        if len(self._totals) > _MOST:
            del self._totals[next(iter(self._totals))]
        if before is None:
            return None
        return load.value - before if load.value >= before else load.value  # the server restarted

    def _until(self, end: int) -> list[tuple[int, Load]]:
        """Return the measurements up to a time, and forget them."""
        # As many as there are now: `hear` may append meanwhile, in the thread of a probe.
        heard = [self._heard.popleft() for _ in range(len(self._heard))]
        self._heard.extendleft(reversed([one for one in heard if one[0] > end]))
        return [one for one in heard if one[0] <= end]

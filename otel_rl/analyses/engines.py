"""The load of inference servers: a probe reads their pages of metrics, and each step has columns of it."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl import semconv
from otel_rl.analysis import Analysis, Attributes, Conclusion, Point
from otel_rl.recorder.agent.input.engine_pages import GENERATED, PREFIX_HITS, PREFIX_QUERIES, Load, address_of, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from otel_rl.analysis import Basis
    from otel_rl.recorder.agent.steps.closed import Closed

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
_COUNTED = (semconv.METRIC_ENGINE_REQUESTS_RUNNING, semconv.METRIC_ENGINE_REQUESTS_WAITING)
_OPEN = "engine/requests_open"
"""Of servers, the mean of the recent open requests, running and waiting: of the one with the most and the fewest."""
_RECENT, _ENOUGH = 16, 8
"""Measurements of a server that its mean is of, and how many there are before it counts."""
_PREEMPTIONS, _HIT_RATE = "engine/preemptions", "engine/prefix_cache_hit_rate"
_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443}
_OF_SERVER: Mapping[str, tuple[str, Callable[[Iterable[float]], float]]] = {
    semconv.METRIC_ENGINE_KV_CACHE_UTILIZATION: (semconv.METRIC_ENGINE_SERVER_KV_CACHE_UTILIZATION, max),
    semconv.METRIC_ENGINE_REQUESTS_RUNNING: (semconv.METRIC_ENGINE_SERVER_REQUESTS_RUNNING, sum),
    semconv.METRIC_ENGINE_REQUESTS_WAITING: (semconv.METRIC_ENGINE_SERVER_REQUESTS_WAITING, sum),
}
"""The metrics of a server, and how they follow from those of its engines."""


class Engine:
    """The metrics endpoint of one inference server.

    Args:
        url: Its address; without a path, `/metrics`.
        hear: Gets the values, and the time in Unix nanoseconds. It is called at once, because a step may close before
            the agent takes its measurements.
        now: The clock, in Unix nanoseconds.
    """

    def __init__(
        self, url: str, hear: Callable[[int, list[Load]], None], now: Callable[[], int] = time.time_ns
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("it needs a scheme and a host")
        self._url = address_of(url)
        self._hear, self._now = hear, now
        self._generated: tuple[int, float] | None = None
        port = parts.port or _PORTS[parts.scheme]
        self._who: Attributes = ((semconv.SERVER_ADDRESS, parts.hostname or ""), (semconv.SERVER_PORT, port))
        self.name = f"engine/{parts.hostname}:{parts.port}"

    def read(self) -> Iterator[Point]:
        """Read the page, pass its values to `hear`, and yield those of the whole server.

        Raises:
            OSError: The server does not answer.
            LookupError: The page has no metric of vLLM or SGLang.
            ValueError: The page is not in the Prometheus text format, or has too many samples.
        """
        engine_loads = fetch(self._url, self.name, _TIMEOUT_S)
        if not engine_loads:
            raise LookupError(f"{self._url} has no metric of vLLM or SGLang")
        now = self._now()
        self._hear(now, engine_loads)
        for quantity, (metric, whole) in _OF_SERVER.items():
            if values := [load.value for load in engine_loads if load.quantity == quantity]:
                yield Point(metric, whole(values), self._who)
        yield from self._rate(now, [load.value for load in engine_loads if load.quantity == GENERATED])

    def _rate(self, now: int, generated: Sequence[float]) -> Iterator[Point]:
        """Yield the tokens per second since the page before; nothing if the server has restarted since."""
        before, self._generated = self._generated, (now, sum(generated)) if generated else None
        if before is not None and self._generated is not None:
            seconds, tokens = (now - before[0]) / 1e9, self._generated[1] - before[1]
            if seconds > 0 and tokens >= 0:
                yield Point(semconv.METRIC_ENGINE_SERVER_TOKENS_RATE, tokens / seconds, self._who)


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
        self._open: dict[str, deque[float]] = {}
        self.generated = 0.0

    def hear(self, at: int, loads: Iterable[Load]) -> None:
        """Add the values of one server at a time (Unix nanoseconds)."""
        finite = [load for load in loads if math.isfinite(load.value) and load.quantity != GENERATED]
        for load in loads:
            if load.quantity == GENERATED and math.isfinite(load.value):
                self.generated += self._rise(load) or 0.0
        for load in finite:
            if load.quantity in _GAUGES:
                self._heard.append((at, load))
            elif (rise := self._rise(load)) is not None:
                self._heard.append((at, load._replace(value=rise)))
        self._servers.update(load.server for load in finite)
        of_server = {load.server: 0.0 for load in finite if load.quantity in _COUNTED}
        for load in finite:
            if load.quantity in _COUNTED:
                of_server[load.server] += load.value
        for server, requests in of_server.items():
            self._open.setdefault(server, deque(maxlen=_RECENT)).append(requests)

    def during(self, begin: int, end: int) -> dict[str, float]:
        """Return the columns of a step between two times (Unix nanoseconds), over all engines.

        Measurements before the end of the step are then forgotten, those before its beginning too. A hit rate is the
        fraction of looked-up tokens that were cached; without look-ups there is none.
        """
        of_step: dict[str, list[float]] = {}
        for at, load in self._until(end):
            if at >= begin:
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
        recent = [sum(requests) / len(requests) for requests in [*self._open.values()] if len(requests) >= _ENOUGH]
        if of_step and len(recent) > 1:
            columns[f"{_OPEN}/max"], columns[f"{_OPEN}/min"] = max(recent), min(recent)
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


class EnginesAnalysis(Analysis):
    """Measures the servers that the settings name, and relates their load to steps."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self.load = EngineLoad()

    def probes(self) -> Iterator[Engine]:
        """Yield one for each server; those of a run are measured once, by the agent that makes the rows."""
        for url in self.basis.settings.hardware.engines if self.basis.has_all_rows else ():
            with contextlib.suppress(ValueError):  # the file of scrape targets warns of an invalid address
                yield Engine(url, self._hear)

    def close(self, step: Closed, values: Mapping[str, float]) -> Conclusion:
        """Return the load between the first begin and the last end of the step."""
        whole = step.step
        if step.late:
            return Conclusion()
        first, last = min(whole.begun.values(), default=0), max(whole.ended.values(), default=whole.time)
        return Conclusion(self.load.during(first, last))

    def _hear(self, time: int, loads: Sequence[Load]) -> None:
        # In the poller's thread: a step may close before the agent's thread takes the measurement.
        self.load.hear(time, loads)
        self.basis.generated_tokens = self.load.generated

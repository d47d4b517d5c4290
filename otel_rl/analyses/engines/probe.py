"""The probe of one inference server: it reads the server's page of metrics."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl import semconv
from otel_rl.analysis import Attributes, Point
from otel_rl.recorder.agent.input.engine_pages import GENERATED, Load, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443}
_MOST_BYTES = 16 * 2**20
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
        self._url = parts._replace(path=parts.path or "/metrics").geturl()
        self._hear, self._now = hear, now
        self._generated: tuple[int, float] | None = None
        port = parts.port or _PORTS[parts.scheme]
        self._who: Attributes = ((semconv.SERVER_ADDRESS, parts.hostname or ""), (semconv.SERVER_PORT, port))
        self.name = f"engine/{parts.hostname}:{parts.port}"
        # A proxy for the internet does not know the machines of the cluster.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def read(self) -> Iterator[Point]:
        """Read the page, pass its values to `hear`, and yield those of the whole server.

        Raises:
            OSError: The server does not answer.
            LookupError: The page has no metric of vLLM or SGLang.
            ValueError: The page is not in the Prometheus text format, or has too many samples.
        """
        with self._open(self._url, timeout=_TIMEOUT_S) as answer:
            # At most so much: a server that never ends its page must not fill the agent's memory.
            page = answer.read(_MOST_BYTES).decode("utf-8", "replace")
        engine_loads = loads(page, self.name)
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

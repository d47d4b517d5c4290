"""Inference servers: the load that vLLM and SGLang expose on their metrics endpoints.

Sources: `vllm/v1/metrics/loggers.py` of vLLM, and `srt/observability/metrics_collector.py` of SGLang, which emits these
metrics only with `--enable-metrics`. Both use the Prometheus text format.
"""

from __future__ import annotations

import time
import urllib.request
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl import semconv
from otel_rl.agent.hardware.measurement import Attributes, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443}
_MOST_BYTES = 16 * 2**20
_MOST_LINES = 10_000
"""The largest number of samples of a page, for more than 1,000 replicas: to parse them takes 0.4 s."""
PREFIX_QUERIES, PREFIX_HITS = "prefix_queries", "prefix_hits"
"""Tokens that were looked up in the prefix cache since the server started, and those that were in it."""
GENERATED = "generated"
"""Tokens that were generated since the server started."""
NAMES: Mapping[str, tuple[str, ...]] = {
    semconv.METRIC_ENGINE_KV_CACHE_UTILIZATION: (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",  # before vLLM 0.10
        "sglang:token_usage",
    ),
    semconv.METRIC_ENGINE_REQUESTS_RUNNING: ("vllm:num_requests_running", "sglang:num_running_reqs"),
    semconv.METRIC_ENGINE_REQUESTS_WAITING: ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    semconv.METRIC_ENGINE_PREEMPTIONS: ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    PREFIX_QUERIES: (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
        "sglang:prompt_tokens_total",
    ),
    PREFIX_HITS: ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total"),
    GENERATED: ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
}
"""The names of each quantity in servers; of several on one page, the first one is used."""
_OF_SERVER: Mapping[str, tuple[str, Callable[[Iterable[float]], float]]] = {
    semconv.METRIC_ENGINE_KV_CACHE_UTILIZATION: (semconv.METRIC_ENGINE_SERVER_KV_CACHE_UTILIZATION, max),
    semconv.METRIC_ENGINE_REQUESTS_RUNNING: (semconv.METRIC_ENGINE_SERVER_REQUESTS_RUNNING, sum),
    semconv.METRIC_ENGINE_REQUESTS_WAITING: (semconv.METRIC_ENGINE_SERVER_REQUESTS_WAITING, sum),
}
"""The metrics of a server, and how they follow from those of its engines."""
_KNOWN = tuple(name for names in NAMES.values() for name in names)
_REPLICA = ("engine", "dp_rank")
"""Labels of data-parallel replicas, in vLLM and SGLang: each replica is an engine with a cache of its own."""
_SHARD = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of the shards of one replica, which report the same numbers."""


class Load(NamedTuple):
    """A value of one engine of a server; counters count since the server started."""

    quantity: str
    server: str
    engine: str
    value: float


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
            page = answer.read(_MOST_BYTES).decode("utf-8", "replace")
        found = loads(page, self.name)
        if not found:
            raise LookupError(f"{self._url} has no metric of vLLM or SGLang")
        now = self._now()
        self._hear(now, found)
        for quantity, (metric, whole) in _OF_SERVER.items():
            if values := [load.value for load in found if load.quantity == quantity]:
                yield Point(metric, whole(values), self._who)
        yield from self._rate(now, [load.value for load in found if load.quantity == GENERATED])

    def _rate(self, now: int, generated: Sequence[float]) -> Iterator[Point]:
        """Yield the tokens per second since the page before; nothing if the server has restarted since."""
        before, self._generated = self._generated, (now, sum(generated)) if generated else None
        if before is not None and self._generated is not None:
            seconds, tokens = (now - before[0]) / 1e9, self._generated[1] - before[1]
            if seconds > 0 and tokens >= 0:
                yield Point(semconv.METRIC_ENGINE_SERVER_TOKENS_RATE, tokens / seconds, self._who)


def loads(page: str, server: str) -> list[Load]:
    """Return the values of each engine of a server from a page in the Prometheus text format.

    Raises:
        ValueError: The page is not in this format, or has too many samples.
    """
    from prometheus_client.parser import text_string_to_metric_families  # most agents need no parser

    values: dict[str, dict[str, dict[tuple[str, ...], float]]] = defaultdict(dict)
    lines = [line for line in page.split("\n") if line.startswith(_KNOWN)]  # a label may have other line separators
    if len(lines) > _MOST_LINES:
        raise ValueError(f"{len(lines)} samples on one page: more than {_MOST_LINES}")
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if sample.labels.get("priority"):  # SGLang has the total of all priorities too
                continue
            replica = next((sample.labels[label] for label in _REPLICA if sample.labels.get(label)), "0")
            shards = values[sample.name].setdefault(f"{server}/{replica}", {})
            shard = tuple(sample.labels.get(label, "") for label in _SHARD)
            shards[shard] = shards.get(shard, 0.0) + sample.value  # SGLang counts hits by the place of the cache
    return [
        Load(quantity, server, engine, max(shards.values()))
        for quantity, names in NAMES.items()
        for name in [next((name for name in names if name in values), "")]
        for engine, shards in values.get(name, {}).items()
    ]

"""Pages of metrics of inference servers: the load that vLLM and SGLang expose.

Sources: `vllm/v1/metrics/loggers.py` of vLLM, and `srt/observability/metrics_collector.py` of SGLang, which emits these
metrics only with `--enable-metrics`. Both use the Prometheus text format.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl import semconv
from otel_rl.recorder.otlp import http_client

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_LINES = 10_000
"""The largest number of samples of a page, for more than 1,000 replicas: to parse them takes 0.4 s."""
_MOST_BYTES = 16 << 20
"""The largest page in bytes."""
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


def address_of(url: str) -> str:
    """Return the address of the page of a server; without a path, it is `/metrics`."""
    parts = urlsplit(url)
    return parts._replace(path=parts.path or "/metrics").geturl()


def fetch(address: str, server: str, within_s: float) -> list[Load]:
    """Return the values of each engine of a server, as its page has them now.

    Raises:
        OSError: The server does not answer.
        ValueError: The page is not in this format, or has too many samples.
    """
    # Without proxies: a server is in the cluster, and HTTP_PROXY would answer in its place.
    answer = http_client.ask(address, within=within_s, uses_proxies=False, most=_MOST_BYTES)
    if not answer.is_good:
        raise OSError(f"HTTP {answer.status} {answer.reason}")
    return loads(answer.body.decode("utf-8", "replace"), server)


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

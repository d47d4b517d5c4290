"""The metrics of vLLM and SGLang, declared with `prometheus_client` as in these servers, on a real endpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

MODEL = "Qwen/Qwen3-8B"
_SGLANG_RANK = ["model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "dp_rank", "priority"]


class Vllm:
    """What `vllm/v1/metrics/loggers.py` registers, with a series for each data-parallel engine."""

    def __init__(self, engines: int = 1) -> None:
        self.registry = CollectorRegistry()
        labels, self.engines = ["model_name", "engine"], [(MODEL, str(n)) for n in range(engines)]
        own = {"labelnames": labels, "registry": self.registry}
        self.running = Gauge("vllm:num_requests_running", "Requests in model execution batches.", **own)
        self.waiting = Gauge("vllm:num_requests_waiting", "Requests waiting to be processed.", **own)
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason", "By reason.", [*labels, "reason"], registry=self.registry
        )
        self.usage = Gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", **own)
        self.preemptions = Counter("vllm:num_preemptions", "Cumulative number of preemptions.", **own)
        self.queries = Counter("vllm:prefix_cache_queries", "Queried tokens.", **own)
        self.hits = Counter("vllm:prefix_cache_hits", "Cached tokens.", **own)
        self.generated = Counter("vllm:generation_tokens", "Number of generation tokens processed.", **own)
        tokens = Histogram("vllm:iteration_tokens_total", "Tokens per engine_step.", buckets=[1, 8], **own)
        for engine in self.engines:
            for metric in (self.running, self.waiting, self.usage):
                metric.labels(*engine)
            for counter in (self.preemptions, self.queries, self.hits, self.generated):
                counter.labels(*engine)
            by_reason.labels(*engine, "capacity").set(99)
            tokens.labels(*engine).observe(5)

    def page(self) -> str:
        return generate_latest(self.registry).decode()


def sglang() -> str:
    """Return the page of an SGLang server: 2 tensor-parallel ranks, priorities, and 2 places of cached tokens."""
    registry = CollectorRegistry()
    own = {"labelnames": _SGLANG_RANK, "registry": registry}
    running = Gauge("sglang:num_running_reqs", "The number of running requests.", **own)
    queue = Gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", **own)
    usage = Gauge("sglang:token_usage", "The token usage.", **own)
    retracted = Counter("sglang:num_retracted_requests_total", "Total number of retracted requests.", **own)
    for tp_rank in ("0", "1"):
        rank = (MODEL, "unified", tp_rank, "0", "0", "0")
        for priority, requests in (("", 8), ("1", 3), ("2", 5)):
            running.labels(*rank, priority).set(requests)
        queue.labels(*rank, "").set(4)
        usage.labels(*rank, "").set(0.28)
        retracted.labels(*rank, "").inc(2)
    of_server = ["model_name", "engine_type"]
    prompts = Counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.", of_server, registry=registry)
    cached = Counter("sglang:cached_tokens_total", "Cached.", [*of_server, "cache_source"], registry=registry)
    prompts.labels(MODEL, "unified").inc(1000)
    cached.labels(MODEL, "unified", "device").inc(300)
    cached.labels(MODEL, "unified", "host").inc(100)
    return generate_latest(registry).decode()


@contextlib.contextmanager
def serving(registry: CollectorRegistry) -> Iterator[str]:
    """Yield the URL of an endpoint that serves the metrics."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

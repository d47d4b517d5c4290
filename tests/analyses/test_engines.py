"""Metrics endpoints of inference servers, in the format of vLLM and SGLang."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from otel_rl.analyses.engines import Engine
from otel_rl.recorder.agent.input.engine_pages import Load, loads
from tests.collector import free_port
from tests.recorder.agent.hardware.engine_pages import Vllm, serving, sglang


def values(found: list[Load]) -> dict[tuple[str, str], float]:
    return {(load.quantity, load.engine): load.value for load in found}


def test_a_server_of_vllm() -> None:
    """Each data-parallel replica is an engine; metrics with longer names and histograms are left out."""
    server = Vllm(engines=2)
    for engine, usage in zip(server.engines, (0.25, 0.75), strict=True):
        server.usage.labels(*engine).set(usage)
        server.running.labels(*engine).set(6)
        server.waiting.labels(*engine).set(2)
        server.preemptions.labels(*engine).inc(3)
        server.queries.labels(*engine).inc(100)
        server.hits.labels(*engine).inc(40)

    assert values(loads(server.page(), "s")) == {
        ("rl.engine.kv_cache.utilization", "s/0"): 0.25,
        ("rl.engine.kv_cache.utilization", "s/1"): 0.75,
        **{("rl.engine.requests.running", f"s/{n}"): 6 for n in range(2)},
        **{("rl.engine.requests.waiting", f"s/{n}"): 2 for n in range(2)},
        **{("rl.engine.preemptions", f"s/{n}"): 3 for n in range(2)},
        **{("prefix_queries", f"s/{n}"): 100 for n in range(2)},
        **{("prefix_hits", f"s/{n}"): 40 for n in range(2)},
        **{("generated", f"s/{n}"): 0 for n in range(2)},
    }


def test_a_server_of_sglang() -> None:
    """Shards of one replica count once, priorities only in their total; cached tokens of all places add up."""
    assert values(loads(sglang(), "s")) == {
        ("rl.engine.kv_cache.utilization", "s/0"): 0.28,
        ("rl.engine.requests.running", "s/0"): 8,
        ("rl.engine.requests.waiting", "s/0"): 4,
        ("rl.engine.preemptions", "s/0"): 2,
        ("prefix_queries", "s/0"): 1000,
        ("prefix_hits", "s/0"): 400,
    }


def test_older_names_count_where_the_new_ones_are_missing() -> None:
    """Versions of vLLM before 0.10 have `gpu_` in the name; some have both."""
    page = "vllm:gpu_cache_usage_perc 0.5\n"

    assert [load.value for load in loads(page, "s")] == [0.5]
    assert [load.value for load in loads(f"{page}vllm:kv_cache_usage_perc 0.75\n", "s")] == [0.75]


def test_metrics_of_a_server() -> None:
    """Requests of all its replicas, the highest use of a cache; tokens per second, unless it restarted."""
    server, heard, times = Vllm(engines=2), list[int](), iter([0, 2 * 10**9, 4 * 10**9])
    for n, engine in enumerate(server.engines):
        server.running.labels(*engine).set(3 + n)
        server.usage.labels(*engine).set(0.25 * n)
    with serving(server.registry) as url:
        port = int(url.split(":")[2].split("/")[0])
        engine = Engine(url, lambda time, found: heard.append(len(found)), lambda: next(times))
        found = [shown(engine)]
        server.generated.labels(*server.engines[1]).inc(100)
        found.append(shown(engine))
        server.generated.labels(*server.engines[1]).reset()
        found.append(shown(engine))

    same = {"kv_cache.utilization": 0.25, "requests.running": 7, "requests.waiting": 0}
    assert found == [same, {**same, "tokens.rate": 50.0}, same]
    assert heard == [14, 14, 14]  # at once: seven values of each engine
    assert engine._who == (("server.address", "127.0.0.1"), ("server.port", port))


def shown(engine: Engine) -> dict[str, float]:
    """Return the points of one reading."""
    return {point.metric.removeprefix("rl.engine.server."): point.value for point in engine.read()}


def test_no_server_and_no_metrics_of_one() -> None:
    """SGLang's page has none without `--enable-metrics`; the poller counts both failures."""
    registry = CollectorRegistry()
    Gauge("up", "Up", registry=registry)
    with serving(registry) as url, pytest.raises(LookupError, match="no metric of vLLM or SGLang"):
        shown(Engine(url, lambda *_: None))
    with pytest.raises(OSError, match="refused"):
        shown(Engine(f"http://127.0.0.1:{free_port()}", lambda *_: None))


@pytest.mark.parametrize("url", ["node1:8000", "file:///etc/hosts", "http://"])
def test_a_url_needs_a_scheme_and_a_host(url: str) -> None:
    """Files are not read."""
    with pytest.raises(ValueError, match="a scheme and a host"):
        Engine(url, lambda *_: None)

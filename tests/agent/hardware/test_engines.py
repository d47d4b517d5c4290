"""Metrics endpoints of inference servers, in the format of vLLM and SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Gauge

from otel_rl.agent.hardware.engines import Engine, loads
from otel_rl.agent.hardware.poller import Poller
from tests.agent.hardware.engine_pages import Vllm, serving, sglang
from tests.collector import free_port, wait_for

if TYPE_CHECKING:
    from otel_rl.agent.hardware.engines import Load


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


def test_what_a_server_says_is_heard_at_once() -> None:
    """Over HTTP, by the poller, whose own measurements stay empty."""
    server, heard = Vllm(), list[float]()
    server.running.labels(*server.engines[0]).set(7)
    poller = Poller(0.01)
    with serving(server.registry) as url:
        poller.measure(Engine(url, lambda _, found: heard.extend(load.value for load in found)))
        wait_for(lambda: 7 in heard, "the server is not read")
        poller.stop()

    assert poller.take() == []


@pytest.mark.parametrize("other", [True, False], ids=["another page", "no server"])
def test_a_failure_is_counted(*, other: bool) -> None:
    """A page without such metrics, for example SGLang's without `--enable-metrics`, and a port without a server."""
    registry = CollectorRegistry()
    Gauge("up", "Up", registry=registry)
    poller, reason = Poller(0.01), "LookupError" if other else "URLError"
    with serving(registry) as url:
        port = int(url.split(":")[2].split("/")[0]) if other else free_port()
        poller.measure(Engine(f"http://127.0.0.1:{port}", lambda *_: None))
        wait_for(lambda: poller.failures.get((f"engine/127.0.0.1:{port}", reason), 0) >= 2, "no failure is counted")
        poller.stop()


@pytest.mark.parametrize("url", ["node1:8000", "file:///etc/hosts", "http://"])
def test_a_url_needs_a_scheme_and_a_host(url: str) -> None:
    """Files are not read."""
    with pytest.raises(ValueError, match="a scheme and a host"):
        Engine(url, lambda *_: None)

"""A Collector with node.yaml between machines and head: killed again and again, cut off, and short of room."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.collector import free_port, wait_for
from tests.distributed.link import Link
from tests.distributed.machines import Cluster
from tests.real_parts import needs_program
from tests.servers.running import A_WHILE, Collector

pytestmark = [needs_program("otelcol"), pytest.mark.timeout(900), pytest.mark.slow]
CUT_S, KILLS = 60, 20
_QUEUE = "exporters.otlp_http/head.sending_queue"
TOO_LITTLE = {
    "memory": {"processors.memory_limiter.limit_mib": "2", "processors.memory_limiter.spike_limit_mib": "1"},
    "queue": {f"{_QUEUE}.queue_size": "2"},
}
_REFUSED = "otelcol_receiver_refused_log_records"


def test_every_row_once(tmp_path: Path) -> None:
    """Half of the kills come while it delivers, half while the head cannot be reached for a minute."""
    head = free_port()
    to_head = Link(head)
    place = {"OTEL_RL_HEAD_URL": f"http://127.0.0.1:{to_head.port}", "OTEL_RL_TOKEN": "a-secret-of-the-tests"}
    collector = Collector("node", tmp_path, **place)
    collector.start()
    heads = [f"127.0.0.1:{head}", *[f"127.0.0.1:{collector.port}"] * 2]
    cluster = Cluster(tmp_path, heads, local=1, steps=1500, pause=0.05, deadline=300)
    cluster.go()
    try:
        for _ in range(KILLS // 2):
            before = len(cluster.rows)
            wait_for(lambda before=before: len(cluster.rows) > before, "no rows come", A_WHILE)  # type: ignore[misc]
            collector.kill()
            collector.start()
        to_head.cut()
        cut_at = time.monotonic()
        before = len(cluster.rows)
        for n in range(KILLS // 2):
            time.sleep(max(0.0, cut_at + (n + 1) * CUT_S / (KILLS // 2) - time.monotonic()))
            collector.kill()
            collector.start()
        during = len(cluster.rows) - before
        to_head.mend()
        cluster.finish()
    finally:
        collector.stop()
        for rank in cluster.ranks:
            rank.kill()

    assert during < 100
    cluster.check()


@pytest.mark.parametrize("limit", TOO_LITTLE)
def test_no_row_is_lost_at_a_limit(limit: str, tmp_path: Path) -> None:
    """Agents keep what a Collector refuses for lack of memory or room in its queue, until it has enough."""
    head = free_port()
    place = {"OTEL_RL_HEAD_URL": f"http://127.0.0.1:{head}", "OTEL_RL_TOKEN": "a-secret-of-the-tests"}
    refusing = Collector("node", tmp_path, TOO_LITTLE[limit], **place)
    refusing.start()
    cluster = Cluster(
        tmp_path, [f"127.0.0.1:{port}" for port in (head, refusing.port, refusing.port)], local=1, deadline=300
    )
    cluster.go()
    try:
        wait_for(lambda: refusing.metrics().get(_REFUSED), "nothing is refused", A_WHILE)
        refusing.stop()
        with Collector("node", tmp_path, port=refusing.port, **place):
            cluster.finish()
    finally:
        refusing.stop()
        for rank in cluster.ranks:
            rank.kill()

    cluster.check()

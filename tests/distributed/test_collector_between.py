"""Three machines with a Collector between them and the head, and links that are cut for a minute."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.collector import Collector, free_port, wait_for
from tests.distributed.link import Link
from tests.distributed.machines import Cluster
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs("rotel"), pytest.mark.timeout(280), pytest.mark.slow]
CUT_S = 60


def test_a_minute_without_a_link(tmp_path: Path) -> None:
    """Under load, from the machines to the Collector and from it to the head: nothing is missing, nothing is twice."""
    head = free_port()
    to_head = Link(head)
    collector = Collector(tmp_path, forward_to=to_head.port, headers="Authorization=Bearer secret")
    collector.start()
    to_collector = Link(collector.http)
    heads = [f"127.0.0.1:{head}", *[f"127.0.0.1:{to_collector.port}"] * 2]
    cluster = Cluster(tmp_path, heads, local=1, steps=1500, pause=0.05, deadline=150)
    cluster.go()
    try:
        wait_for(lambda: len(cluster.rows) > 10, "no rows come", 60)
        before = len(cluster.rows)
        for link in (to_collector, to_head):
            link.cut()
        time.sleep(CUT_S)
        waiting = len(cluster.rows)
        for link in (to_collector, to_head):
            link.mend()
        cluster.finish()
    finally:
        collector.stop()
        for rank in cluster.ranks:
            rank.kill()

    assert waiting - before < 100
    cluster.check()

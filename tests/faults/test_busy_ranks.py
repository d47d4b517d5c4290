"""A rank that hangs while another one logs without a pause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector import wait_for
from tests.distributed.machines import Cluster


@pytest.mark.slow
def test_a_row_leaves_at_the_deadline_though_another_rank_is_busy(tmp_path: Path) -> None:
    """The agent always finds records of rank 0, and yet the row that waits for rank 1 leaves."""
    (tmp_path / "go").touch()
    hangs = {1: {"PAUSE": "100"}}
    cluster = Cluster(
        tmp_path, [""], local=2, steps=1 << 40, pause=0.001, deadline=1, of_ranks=hangs, OTEL_RL_IDLE_TIMEOUT="5"
    )
    try:
        wait_for(lambda: cluster.rows, "the row does not leave", 100)
    finally:
        for rank in cluster.ranks:
            rank.kill()

    assert (cluster.rows[0]["step"], cluster.rows[0]["missing_ranks"]) == (0, [1])

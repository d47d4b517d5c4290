"""A rank of a real training that comes back alone: every later row has the values of all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.machines import Cluster, head

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize("launcher", ["actor", "torchft", "agent-killed"])
def test_a_rank_that_comes_back_alone(tmp_path: Path, launcher: str, machines: int) -> None:
    """As an actor of Ray, and a replica of torchft below a torchrun of its own; and while the agent is killed."""
    torchrun = {
        rank: {
            "TORCHELASTIC_RUN_ID": f"replica{rank}",
            "TORCHELASTIC_ERROR_FILE": f"/tmp/replica{rank}/attempt_0/0/error.json",
        }
        for rank in (range(2) if launcher == "torchft" else ())
    }
    dies = {1: {**torchrun.get(1, {}), "DIES_IN": "10"}}
    heads = [head() if machines > 1 else ""] * machines
    cluster = Cluster(
        tmp_path, heads, local=2 // machines, steps=70, pause=0, deadline=60, of_ranks=torchrun | dies, MEETS="1"
    )
    cluster.go()
    try:
        cluster.ranks[1].wait(60)
        if launcher == "agent-killed":
            cluster.kill_agent(0)
        again = {"TORCHELASTIC_RESTART_COUNT": "1"} if torchrun else {}
        cluster.restart(1, BEGIN="10", DIES_IN="-1", LOADS="2", **again)
        cluster.finish()
    finally:
        for rank in cluster.ranks:
            rank.kill()

    cluster.check(first=10)

"""Ranks that wait for each other in collectives of torch.distributed, over gloo, when one of them stands still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from otel_rl.export import Event
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.facts.signs import Stalled
from tests.collector import free_port, wait_for
from tests.distributed.machines import Cluster, head
from tests.processes import items_of, start_python
from tests.real_parts import needs

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
AFTER = 5
_TRAINER = """
import os, time, torch, otel_rl
from pathlib import Path
import torch.distributed as dist

dist.init_process_group("gloo")
run = otel_rl.init(dir="runs", project="p", id="it", quiet=True, hardware=False)
gradient, at, n = torch.ones(4), time.monotonic, 0
end = torch.zeros(1)
while not end.item():
    with run.step(n):
        with run.phase("generate"):
            time.sleep(0.1)
        with run.phase("update_actor"):
            if Path("works").exists() and dist.get_rank() == 1:
                began = at()
                while at() < began + 12:
                    gradient * 2
                Path("works").unlink()
            dist.all_reduce(gradient)
            end[0] = float(dist.get_rank() == 0 and Path("end").exists())
            dist.broadcast(end, 0)
    n += 1
run.finish(60)
dist.destroy_process_group()
"""


@needs("torch")
def test_a_stopped_and_a_slow_rank(tmp_path: Path) -> None:
    """The stopped rank is named within two deadlines, once, until it goes on; one that works on is slow."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(free_port()), "OTEL_RL_STALLED_AFTER": str(AFTER)}
    ranks = [start_python(_TRAINER, tmp_path, **shared, RANK=str(n), LOCAL_RANK=str(n)) for n in range(2)]
    run = tmp_path / "runs" / "p" / "it"

    def stalled() -> tuple[Stalled, ...]:
        return tuple(one for now in read_now(run) for one in now.stalled)

    def steps() -> int:
        return max((now.progress.steps for now in read_now(run)), default=0)

    wait_for(lambda: steps() > 5, "they do not train", 100)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    wait_for(lambda: bool(stalled()), "there is no verdict", 60)
    (hung,) = stalled()
    os.kill(ranks[1].pid, signal.SIGCONT)
    wait_for(lambda: not stalled(), "the verdict is not withdrawn", 60)
    (tmp_path / "works").touch()
    wait_for(lambda: any(one.kind == "slow" for one in stalled()), "it is not slow", 60)
    wait_for(lambda: not stalled(), "the verdict is not withdrawn", 60)
    (tmp_path / "end").touch()
    ended = [rank.communicate(timeout=100) for rank in ranks]
    events = [one for one in items_of(run) if isinstance(one, Event) and one.name.startswith("rl.phase.")]

    assert [rank.returncode for rank in ranks] == [0, 0], ended
    assert (hung.rank, hung.kind, hung.scope) == (1, "hung", "job")
    assert hung.evidence == "stopped by a signal or a debugger"
    assert float(str(events[0].attributes["rl.stall.age"])) < 2 * AFTER
    assert [(one.name, one.rank, one.attributes["rl.stall.kind"]) for one in events][:2] == [
        ("rl.phase.stalled", 1, "hung"),
        ("rl.phase.resumed", 1, "hung"),
    ]
    assert ("rl.phase.stalled", "slow") in [(one.name, one.attributes["rl.stall.kind"]) for one in events[2:]]
    assert "rank 1 hangs in" in (run / "agent.log").read_text()


def test_a_machine_that_sends_nothing(tmp_path: Path) -> None:
    """If the agent of a machine is stopped, the head says that the machine is silent, until it sends again.

    Another machine sends also while its rank records nothing: that rank hangs.
    """
    cluster = Cluster(tmp_path, [head()] * 2, local=1, pause=0.5, deadline=120, OTEL_RL_STALLED_AFTER=str(AFTER))

    def stalled() -> dict[tuple[int, str], int]:
        found = (one for now in read_now(cluster.dirs[0]) for one in now.stalled)
        return {(one.rank, one.kind): one.silent_since_unix_nano for one in found}

    wait_for(lambda: len(cluster.rows) >= 5, "no rows", 90)
    stopped_at = time.time_ns()
    os.kill(cluster.agent_of(1), signal.SIGSTOP)
    wait_for(lambda: (1, "silent") in stalled(), "it is not silent", 90)
    silent = stalled()
    os.kill(cluster.agent_of(1), signal.SIGCONT)
    wait_for(lambda: (1, "hung") in stalled(), "it does not hang", 60)
    cluster.go()
    cluster.finish()

    assert [*silent] == [(1, "silent")]
    assert abs(silent[1, "silent"] - stopped_at) < 15e9
    cluster.check()

"""Four ranks that wait for each other in collectives of torch.distributed, over gloo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_rl.export import Event
from tests.collector import free_port
from tests.processes import items_of, start_python
from tests.real_parts import needs

pytestmark = [needs("torch"), pytest.mark.timeout(300), pytest.mark.slow]
WORLD, STEPS, SLOW = 4, 30, 2
_TRAINER = """
import json, os, time, torch, otel_rl
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

dist.init_process_group("gloo")
rank, slow, steps = dist.get_rank(), int(os.environ["SLOW"]), int(os.environ["STEPS"])
run = otel_rl.init(dir="runs", project="p", quiet=True, hardware=False)
gradient = torch.ones(4)
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for n in range(steps):
        with run.step(n):
            with run.phase("generate"):
                time.sleep(0.08)
            with run.phase("reward"):
                time.sleep(0.065 if rank == slow else 0.05)
            with run.phase("update_actor"):
                time.sleep(0.02)
            with run.phase("weight_sync"):
                dist.all_reduce(gradient)
                dist.barrier()
            run.log({"loss": float(rank)})
called = [event.name for event in profiler.events() if event.name.startswith("gloo:")]
print(json.dumps({"dir": str(run.dir), "delivered": bool(run.finish(60)), "called": called}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The last message of each rank; they are started as by torchrun."""
    place, shared = tmp_path_factory.mktemp("gloo"), {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OTEL_RL_RUN_ID": "run-7"}
    shared |= {"SLOW": str(SLOW), "STEPS": str(STEPS)}
    ranks = [start_python(_TRAINER, place, **shared, RANK=str(n), LOCAL_RANK=str(n)) for n in range(WORLD)]
    ended = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * WORLD, ended
    found = [json.loads(output.splitlines()[-1]) for output, _ in ended]
    assert [one["delivered"] for one in found] == [True] * WORLD
    return found


def test_the_slow_one_is_named(told: list[dict[str, Any]]) -> None:
    """Not those that wait for it in the collective."""
    events = [item for item in items_of(Path(told[0]["dir"])) if isinstance(item, Event)]
    named = [(event.rank, event.attributes["rl.phase"]) for event in events if event.name == "rl.straggler"]

    assert named[0] == (SLOW, "reward")
    assert "weight_sync" not in {phase for _, phase in named}


def test_no_collective_is_ours(told: list[dict[str, Any]]) -> None:
    """A trace of the process group shows what the trainer called, and nothing else."""
    for one in told:
        assert len([name for name in one["called"] if "all_reduce" in name]) == STEPS
        assert {name for name in one["called"] if "all_reduce" not in name} <= {"gloo:barrier"}

"""Four ranks that wait for each other in collectives of torch.distributed, over gloo."""

from __future__ import annotations

import json
import os
import signal
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from otel_rl.export import Event
from tests.collector import free_port, wait_for
from tests.processes import items_of, rows_of, start_python
from tests.real_parts import needs

if TYPE_CHECKING:
    import subprocess

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
took = []
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for n in range(steps):
        began = time.perf_counter()
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
            run.log({"reward": [float(n + r) for r in range(rank + 1)], "loss": float(rank)}, weight=rank + 1)
        took.append(time.perf_counter() - began)
called = [event.name for event in profiler.events() if event.name.startswith("gloo:")]
print(json.dumps({"dir": str(run.dir), "delivered": run.finish(60), "took": took, "called": called}))
dist.destroy_process_group()
"""
_LONER = """
import os, sys, time, otel_rl
run = otel_rl.init(dir="runs", project="p", quiet=True, rows={"deadline": 1}, hardware=False)
print(run.dir, flush=True)
for n in range(int(os.environ["STEPS"])):
    with run.step(n):
        time.sleep(0.05)
        run.log({"loss": float(run._session.settings.rank)})
print(run.finish(60), flush=True)
"""


def start(script: str, directory: Path, **environment: str) -> list[subprocess.Popen[str]]:
    """Start a rank of each number, as torchrun would."""
    shared = {
        "WORLD_SIZE": str(WORLD),
        "LOCAL_WORLD_SIZE": str(WORLD),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OTEL_RL_RUN_ID": "run-7",
    }
    return [
        start_python(script, directory, **shared, **environment, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank in range(WORLD)
    ]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The last message of each rank."""
    ranks = start(_TRAINER, tmp_path_factory.mktemp("gloo"), SLOW=str(SLOW), STEPS=str(STEPS))
    ended = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * WORLD, ended
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


def test_rows_are_right_to_the_last_digit(told: list[dict[str, Any]]) -> None:
    """Samples of unequal numbers are pooled, scalars weighted by how many samples they stand for."""
    rows: list[Any] = rows_of(Path(told[0]["dir"]))

    assert [one["delivered"] for one in told] == [True] * WORLD
    assert [row["step"] for row in rows] == list(range(STEPS))
    for row in rows:
        pooled = [float(row["step"] + r) for rank in range(WORLD) for r in range(rank + 1)]
        assert row["values"]["reward/count"] == len(pooled)
        assert row["values"]["reward/mean"] == statistics.fmean(pooled)
        assert row["values"]["reward/std"] == pytest.approx(statistics.pstdev(pooled), rel=1e-15)
        assert row["values"]["loss"] == sum(rank * (rank + 1) for rank in range(WORLD)) / 10


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


def test_ranks_that_die_or_stand_still(tmp_path: Path) -> None:
    """One is killed and one is stopped for some seconds: the others' steps go on, rows say who is missing."""
    ranks = start(_LONER, tmp_path, STEPS="160")
    run_dir = Path(tmp_path, ranks[0].stdout.readline().strip())  # type: ignore[union-attr]
    wait_for(lambda: len(rows_of(run_dir)) >= 20, "no rows", 60)
    os.kill(ranks[3].pid, signal.SIGKILL)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    wait_for(lambda: any(row.get("missing_ranks") == [1, 3] for row in rows_of(run_dir)), "no row names them", 60)
    wait_for(lambda: ranks[0].poll() is not None, "the others do not end", 60)
    os.kill(ranks[1].pid, signal.SIGCONT)
    ended = [ranks[n].communicate(timeout=120)[0].split()[-1] for n in (0, 1, 2)]
    rows: list[Any] = rows_of(run_dir)
    full = [row["step"] for row in rows if not row.get("late")]

    assert ended[1] == "True"
    assert full == list(range(160))
    assert all(row["values"]["loss"] == 1.5 for row in rows[:20])
    assert {tuple(row.get("missing_ranks", ())) for row in rows[-20:] if not row.get("late")} <= {(3,), (1, 3), (1,)}

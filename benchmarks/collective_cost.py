"""The cost for a rank of reducing its metrics: by a record for the agent, or by collectives in the trainer."""

from __future__ import annotations

import json

from benchmarks.recording import directory, end_agent, start_ranks
from benchmarks.tables import Cell, Table

_METRICS = 200
_RANK = """
import json, os, statistics, time, torch, otel_rl
import torch.distributed as dist

os.environ["OTEL_RL_IDLE_TIMEOUT"] = "2"
dist.init_process_group("gloo")
world = dist.get_world_size()
run = otel_rl.init(dir="runs", project="benchmark", exporters=[], quiet=True, hardware=False)
values = {f"actor/metric_{n}": n / 7 for n in range(METRICS)}

def log(n):
    run.log(values, step=n)

def fused(n):
    summed = torch.tensor(list(values.values()))
    dist.all_reduce(summed)
    return dict(zip(values, (summed / world).tolist()))

def gathered(n):
    means = {}
    for name, value in values.items():
        found = [None] * world if dist.get_rank() == 0 else None
        dist.gather_object(value, found)
        if found:
            means[name] = sum(found) / world
    return means

def median(call, times, wait=dist.barrier):
    took = []
    for n in range(times):
        wait()
        began = time.perf_counter_ns()
        call(n)
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took[len(took) // 5:]) / 1e3

calls = {"run.log": (log, 400), "run.log, not at the same moment": (log, 400, lambda: time.sleep(0.01))}
calls |= {"one fused all_reduce": (fused, 400), "gather_object of each": (gathered, 15)}
found = {name: median(*call) for name, call in calls.items()}
run.finish(30)
if dist.get_rank() == 0:
    print(json.dumps({"dir": str(run.dir), "took": found}))
dist.destroy_process_group()
"""


def measure() -> list[Table]:
    """Return the cost of a step's metrics for one rank among 1, 2 and 4."""
    found = {world: _medians(world) for world in (1, 2, 4)}
    rows: list[list[Cell]] = [
        [call, *(found[world][call] for world in found), found[4][call] / found[4]["run.log"]] for call in found[1]
    ]
    columns = ["how", "1 rank µs", "2 ranks µs", "4 ranks µs", "÷ run.log, 4 ranks"]
    note = (
        "Medians of rank 0, over gloo on this machine, each call after a barrier, or after a pause of 10 ms. The "
        "agent reduces meanwhile, in a process of its own; with more ranks than cores everything waits for everything."
    )
    return [Table(f"{_METRICS} metrics of a step, reduced over ranks", columns, rows, note)]


def _medians(world: int) -> dict[str, float]:
    with directory() as place:
        ranks = start_ranks(_RANK.replace("METRICS", str(_METRICS)), place, world)
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
        told = json.loads(outputs[0].splitlines()[-1])
        end_agent(place / told["dir"])
        return {call: float(took) for call, took in told["took"].items()}

"""The effect on the other ranks when one is stopped for 30 s, and when one is killed: none."""

from __future__ import annotations

import json
import signal
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.recording import directory, end_agent, start_ranks
from benchmarks.tables import Cell, Table

if TYPE_CHECKING:
    import subprocess

_WORLD, _STOPPED, _KILLED = 4, 3, 2
_BEFORE_S, _STOP_S, _AFTER_S = 15, 30, 10
_RANK = """
import json, os, time, torch, otel_rl
import torch.distributed as dist

dist.init_process_group("gloo")
run = otel_rl.init(
    dir="runs", project="benchmark", exporters=["jsonl"], quiet=True, hardware=False, rows={"deadline": 90}
)
values = {f"actor/metric_{n}": n / 7 for n in range(200)}
print(run.dir, flush=True)
took, n = [], 0
while not os.path.exists("over"):
    began = time.perf_counter()
    with run.step(n), run.phase("generate"):
        time.sleep(0.05)
        run.log(values)
    took.append((time.time(), time.perf_counter() - began))
    n += 1
print(json.dumps({"took": took, "delivered": bool(run.finish(90))}), flush=True)
"""


def measure() -> list[Table]:
    """Return the step time of two ranks before, while a third is stopped, and after a fourth was killed."""
    with directory() as place:
        ranks = start_ranks(_RANK, place, _WORLD)
        run_dir = place / [_line(rank) for rank in ranks].pop()
        marks = _play(ranks)
        (place / "over").touch()
        told = [json.loads(_line(rank)) for number, rank in enumerate(ranks) if number != _KILLED]
        lines = (run_dir / "rows.jsonl").read_bytes().splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        end_agent(run_dir)
    healthy = [one["took"] for one in told[:2]]
    rows: list[list[Cell]] = []
    first = 0.0
    for what, began, ended in marks:
        found = [seconds * 1e3 for took in healthy for at, seconds in took if began < at <= ended]
        first = first or statistics.median(found)
        p99 = statistics.quantiles(found, n=100)[98]
        rows.append([what, statistics.median(found), p99, statistics.median(found) / first])
    note = (
        f"{_WORLD} ranks with a gloo process group that they do not use, 200 metrics a step of 50 ms. "
        f"{len(steps)} rows reached the tracker, {len(steps) - len(set(steps))} of them twice; everything was "
        f"delivered: {all(one['delivered'] for one in told)}."
    )
    return [Table("Steps of the other ranks", ["while", "p50 ms", "p99 ms", "÷ before"], rows, note)]


def _play(ranks: list[subprocess.Popen[str]]) -> list[tuple[str, float, float]]:
    """Stop a rank, let it go on, kill another; return what was when."""
    time.sleep(2)
    times = [time.time()]
    time.sleep(_BEFORE_S)
    ranks[_STOPPED].send_signal(signal.SIGSTOP)
    times.append(time.time())
    time.sleep(_STOP_S)
    ranks[_STOPPED].send_signal(signal.SIGCONT)
    times.append(time.time())
    time.sleep(_AFTER_S)
    ranks[_KILLED].kill()
    times.append(time.time())
    time.sleep(_AFTER_S)
    times.append(time.time())
    what = ["all four run", f"one is stopped for {_STOP_S} s", "it goes on", "another was killed"]
    return [(text, times[n], times[n + 1]) for n, text in enumerate(what)]


def _line(rank: subprocess.Popen[str]) -> str:
    return rank.stdout.readline().strip() if rank.stdout else ""

"""A training with known values: what users have, without a model.

Its variables: STEPS, PAUSE (seconds of a step), FINISH (seconds that `finish` may take; none: the process just ends).
Where there is a file `step` it goes on from that step; rank 0 writes the file when the training saves, at SIGUSR1.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import otel_rl

asked: list[int] = []
signal.signal(signal.SIGUSR1, lambda number, frame: asked.append(number))

names = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
)  # of the innermost launcher; otel-rl has its own way
rank = int(next((os.environ[name] for name in names if name in os.environ), "0"))
steps, pause = int(os.environ.get("STEPS", "40")), float(os.environ.get("PAUSE", "0.05"))
start = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
saved = Path("step")
first = int(saved.read_text()) if saved.exists() else 0

run = otel_rl.init(project="test", dir=os.environ.get("OTEL_RL_DIR", "runs"), hardware=False, row_deadline=60)
print(f"run {run.dir} rank {rank}", flush=True)
for n in range(first, steps):
    with run.step(n), run.phase("generate"):
        time.sleep(pause)
    run.log({"value": n + rank / 4, "ranks@sum": 2.0**rank}, step=n)
    print(f"logged {n} rank {rank} start {start}", flush=True)
    if asked:
        if rank == 0:
            saved.write_text(str(n + 1))
        print(f"saved {n + 1} rank {rank}", flush=True)
        break
if finish := os.environ.get("FINISH", "60"):
    print(f"finish {run.finish(float(finish))} rank {rank}", flush=True)
print(f"done rank {rank}", flush=True)
sys.exit(int(os.environ.get("EXIT", "0")))

"""A training with known values: what users have, without a model.

Its variables: STEPS, PAUSE (seconds of a step), FINISH (seconds that `finish` may take; empty: the process just ends),
EXIT (its exit status), SAVES_AT_TERM (it saves at SIGTERM too), WAITS (the first start of the job waits in step 30 for
a file `go`, or for the signal), HANGS (it waits there for nothing).
Where there is a file `step` it goes on from that step; rank 0 writes the file when the training saves, at SIGUSR1.
A training that waits saves step 30 even if it is asked earlier, so that all ranks save the same step.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import otel_rl

asked: list[int] = []
for number in (signal.SIGUSR1, *([signal.SIGTERM] if os.environ.get("SAVES_AT_TERM") else [])):
    signal.signal(number, lambda number, frame: asked.append(number))

names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")  # innermost first, as the test itself knows them
rank = int(next((os.environ[name] for name in names if name in os.environ), "0"))
steps, pause = int(os.environ.get("STEPS", "40")), float(os.environ.get("PAUSE", "0.05"))
start = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
saved = Path("step")
first = int(saved.read_text()) if saved.exists() else 0
said = Path(f"start{start}.rank{rank}.{os.getpid()}.log")  # srun may lose what is printed


def say(text: str) -> None:
    """Write a line."""
    with said.open("a") as log:
        log.write(f"{text}\n")


def waits() -> bool:
    """Tell whether the training stays where it is."""
    told = bool(asked) or Path("go").exists()
    return "HANGS" in os.environ or ("WAITS" in os.environ and not told)


run = otel_rl.init(project="test", dir=os.environ.get("OTEL_RL_DIR", "runs"), hardware=False, rows={"deadline": 60})
say(f"run {run.dir} rank {rank}")
for n in range(first, steps):
    with run.step(n), run.phase("generate"):
        time.sleep(pause)
        while n == 30 and not start and waits():
            time.sleep(0.1)
    run.log({"value": n + rank / 4, "ranks@sum": 2.0**rank}, step=n)
    say(f"logged {n} rank {rank} start {start}")
    if asked and (n >= 30 or "WAITS" not in os.environ):
        if rank == 0:
            saved.write_text(str(n + 1))
        say(f"saved {n + 1} rank {rank}")
        break
if finish := os.environ.get("FINISH", "60"):
    say(f"finish {bool(run.finish(float(finish)))} rank {rank}")
say(f"done rank {rank}")
sys.exit(int(os.environ.get("EXIT", "0")))

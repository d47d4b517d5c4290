"""prime-rl's own monitors with W&B, with the calls of its trainer and of its orchestrator."""

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace

# Its monitor for the platform of Prime Intellect, and its saved views, which need an account of W&B.
sys.modules["prime_rl.monitors.prime"] = SimpleNamespace(PrimeMonitor=None)
sys.modules["prime_rl.monitors.wandb.overview"] = SimpleNamespace(ensure_overview_view=None)
from prime_rl import monitors
from prime_rl.configs.monitors import WandbMonitorConfig
from prime_rl.orchestrator.periodic_logger import PeriodicLogger


async def train():
    await monitors.setup(wandb=WandbMonitorConfig(project="p", offline=True), output_dir=Path())
    pipeline = PeriodicLogger(
        name="pipeline",
        collect=lambda: ("", {"dispatcher/inflight/train": time.time()}),
        metric_keys=["dispatcher/*"],
        interval=0.05,
        wandb_enabled=True,
    )
    await pipeline.start()
    for step in range(8):
        await monitors.log({"perf/throughput": step / 3, "perf/mfu": step / 7}, step=step)
        await monitors.log({"optim/lr": 1e-6, "optim/grad_norm": step / 9}, step=step)
        await monitors.log({"time/step": step / 11}, step=step)
        await asyncio.sleep(0.1)
    await pipeline.stop()
    await monitors.finalize()


asyncio.run(train())

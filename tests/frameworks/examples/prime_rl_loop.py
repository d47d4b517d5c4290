"""prime-rl: the loop of its trainer, and an orchestrator, without a line of otel-rl: `otel-rl run -- python …`.

The monitors, their configurations, the data loader and the orchestrator's statistics are prime-rl's.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from prime_rl import monitors
from prime_rl.configs.monitors import FileMonitorConfig
from prime_rl.configs.trainer import FakeDataLoaderConfig, TrainerConfig
from prime_rl.orchestrator.metrics import Stat
from prime_rl.trainer.rl.data import FakeDataLoader


class Progress:
    step = 1


class OrchestratorConfig:
    """prime-rl's own one has many settings that must be given."""


OrchestratorConfig.__module__ = "prime_rl.configs.orchestrator"


async def orchestrate():
    file = FileMonitorConfig()
    await monitors.setup(file=file, output_dir=Path("own/orchestrator"), run_config=OrchestratorConfig())
    for step in range(1, 5):
        metrics = Stat([step / 7, 0.5]).to_dict("train/agg/all/agent/reward")
        await monitors.log(metrics | {"time/step": 0.25, "off_policy/mean": 1.0, "step": step}, step=step)
    await monitors.finalize()


def train():
    setup = monitors.setup(file=FileMonitorConfig(), output_dir=Path("own/trainer"), run_config=TrainerConfig())
    asyncio.run(setup)
    loader = FakeDataLoader(FakeDataLoaderConfig(), 64, 1)
    progress = Progress()
    while progress.step < 5:
        loader.wait_for_batch()
        batch = loader.get_batch()
        metrics = {"loss/mean": progress.step / 3, "entropy/all/mean": 0.5, "perf/peak_memory": float(len(batch))}
        asyncio.run(monitors.log(metrics | {"step": progress.step}, step=progress.step))
        asyncio.run(monitors.log({"time/step": 0.5, "step": progress.step}, step=progress.step))
        progress.step += 1


if sys.argv[1:] == ["orchestrator"]:
    asyncio.run(orchestrate())
else:
    os.environ["PRL_RUN_ID"] = "0123456789abcdef"
    with subprocess.Popen([sys.executable, __file__, "orchestrator"]):
        train()

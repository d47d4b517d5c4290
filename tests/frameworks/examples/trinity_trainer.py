"""Trinity-RFT's own trainer loop on a CPU: the engine is a toy, all the rest is Trinity's code.

`python trinity_trainer.py MONITOR_TYPE` trains for three steps. Its monitor's values go to `logged.jsonl` too. If there
is a file `snippet.py`, Trinity's module executes it, which replaces its registry of monitors.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace as Plain
from typing import Any

import torch
from trinity.algorithm.sample_strategy.sample_strategy import DefaultSampleStrategy
from trinity.common.constants import SyncMethod, SyncStyle
from trinity.common.experience import Experience
from trinity.trainer import trainer as module

SNIPPET = Path("snippet.py")
if SNIPPET.exists():
    exec(SNIPPET.read_text(), vars(module))


async def nothing(*_: Any, **__: Any) -> None:
    """Stand for what needs a device or another actor."""


class Engine:
    """An engine that trains nothing."""

    train_step_num = 0
    save_checkpoint = save_state_dict = upload_state_dict = staticmethod(nothing)

    async def train_step(self, batch: list[Experience]) -> dict[str, float]:
        await asyncio.sleep(0.05)
        self.train_step_num += 1
        names = ("tokens", "action_mask", "logprobs")
        with Path("batches.jsonl").open("a") as file:
            lists = [[getattr(one, name).tolist() for name in names] for one in batch]
            print(json.dumps({"step": self.train_step_num, "experiences": lists}), file=file)
        return {"actor/pg_loss": self.train_step_num / 7, "actor/kl": 0.25, "critic/rewards/mean": 0.5}


def talk() -> Experience:
    """Return an experience of several turns, with a tool."""
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
    messages = [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ]
    mask = [True, True, False, True]
    logprobs = -torch.arange(1, 5) / 7
    return Experience(
        tokens=torch.arange(6), prompt_length=2, reward=1.0, info={"model_version": 2}, logprobs=logprobs,
        action_mask=mask, messages=messages,
    )  # fmt: skip


class Buffer:
    """A buffer with random experiences."""

    async def read(self, **_: Any) -> list[Experience]:
        await asyncio.sleep(0.2)
        return [
            Experience(
                tokens=torch.arange(6),
                prompt_length=2,
                reward=n / 2,
                info={"model_version": n},
                logprobs=-torch.arange(1, 5) / (n + 3),
                prompt_text="What is 2 + 2?",
                response_text=f"It is {n}.",
                metrics={"accuracy": n / 4},
            )
            for n in range(2)
        ] + [talk()]

    read_async = read  # its name in 0.5

    def state_dict(self) -> dict[str, Any]:
        return {}


class Sampling(DefaultSampleStrategy):  # type: ignore[misc] # Trinity's class
    """Trinity's sampling from a buffer that is in memory."""

    def __init__(self) -> None:
        self.exp_buffer = Buffer()


class ToyTrainer(module.Trainer):  # type: ignore[misc] # Trinity's class
    """Trinity's trainer without the actors and models that its constructor begins."""

    def __init__(self, monitor_type: str) -> None:
        parts = Plain(cache_dir="own", monitor_args={}, monitor_type=monitor_type)
        trainer = Plain(name="trainer", enable_preview=True, save_interval=2)
        self.config = Plain(monitor=parts, trainer=trainer, synchronizer=Plain(sync_interval=1), name="run")
        self.config.flatten = lambda: {"lr": 1e-6}
        self.logger, self.engine, self.sample_strategy = logging.getLogger("trinity"), Engine(), Sampling()
        self.synchronizer = Plain(set_trainer_status=Plain(remote=nothing))
        self.state = Plain(save_trainer=lambda **_: None)
        self.monitor = module.MONITOR.get(monitor_type)(
            project="rft", group="g", name="run", role="trainer", config=self.config
        )
        self._sample_exps_to_log: list[Any] = []
        self.save_interval, self.sync_interval, self.total_steps = 2, 1, 3
        self.last_sync_step, self.last_sync_time, self.save_hf_checkpoint = 0, None, "never"
        self.sync_method, self.sync_style = SyncMethod.CHECKPOINT, SyncStyle.FIXED


def main() -> None:
    """Train."""
    trainer = ToyTrainer(sys.argv[1])
    log = trainer.monitor.log

    def logged(values: dict[str, Any], step: int) -> None:
        with Path("logged.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "values": values}) + "\n")
        log(values, step)

    trainer.monitor.log = logged
    asyncio.run(trainer.train())
    asyncio.run(trainer.shutdown())


if __name__ == "__main__":
    main()

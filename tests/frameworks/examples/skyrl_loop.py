"""SkyRL: the loop of its trainer, without a line of otel-rl: `otel-rl run -- python skyrl_loop.py`."""

import asyncio

from skyrl.train.utils.tracking import Tracking
from skyrl.train.utils.utils import Timer


class Trainer:
    def __init__(self):
        self.tracker = Tracking("p", "ppo", "console")
        self.global_step = 0
        self.all_timings = {}

    async def train(self):
        for self.global_step in range(1, 5):
            with Timer("step", self.all_timings):
                async with Timer("generate", self.all_timings):
                    await asyncio.sleep(0.01)
                with Timer("train_critic_and_policy", self.all_timings), Timer("policy_train", self.all_timings):
                    pass
            with Timer("eval", self.all_timings):
                pass
            payload = {"reward/avg_pass_at_1": self.global_step / 7}
            payload |= {f"timing/{name}": seconds for name, seconds in self.all_timings.items()}
            print("TOLD", payload)
            self.tracker.log(payload, step=self.global_step, commit=True)
            self.all_timings = {}
        self.tracker.finish()


asyncio.run(Trainer().train())

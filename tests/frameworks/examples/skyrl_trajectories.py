"""SkyRL: its own conversion of generated trajectories into batches, and its advantages, without models and engines.

`otel-rl run -- python skyrl_trajectories.py` makes two steps, and writes the trajectories of each to `generated.jsonl`.
"""

import json
import sys
import typing
from pathlib import Path
from types import SimpleNamespace

import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict  # SkyRL needs Python 3.12; pydantic needs this before

from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.tracking import Tracking

PROMPTS = [[1, 2, 3], [1, 2, 3], [4], [4]]
RESPONSES = [[5, 6], [7, 8, 9, 10, 11], [12], [13, 14, 15]]
MASKS = [[1, 1], [1, 1, 0, 0, 1], [1], [0, 0, 0]]
REWARDS = [1.0, 0.5, 0.0, 0.25]


class Tokenizer:
    """A letter for each token."""

    pad_token_id = 0

    def decode(self, ids, skip_special_tokens=False):
        return "".join(chr(96 + token) for token in ids)


class Trainer(RayPPOTrainer):
    """SkyRL's trainer without its models, engines and data."""

    def __init__(self):
        self.cfg = SkyRLTrainConfig()
        self.cfg.trainer.train_batch_size, self.cfg.generator.n_samples_per_prompt = 2, 2
        self.cfg.trainer.policy_mini_batch_size = self.cfg.trainer.critic_mini_batch_size = 2
        self.tracker, self.tokenizer, self.all_metrics = Tracking("p", "ppo", "console"), Tokenizer(), {}
        self.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 3)

    def step(self, number):
        self.global_step = number
        logprobs = [[-token / (6 + number) for token in ids] for ids in RESPONSES]
        lists = {"prompt_token_ids": PROMPTS, "response_ids": RESPONSES, "loss_masks": MASKS, "rewards": REWARDS}
        output = {**lists, "rollout_logprobs": logprobs, "rollout_metrics": None, "stop_reasons": None}
        output, uids = self.postprocess_generator_output(output, ["x", "x", "y", "y"])
        data = self.convert_to_training_input(output, uids)
        data["action_log_probs"], data["values"] = data["rollout_logprobs"] / 2, None
        data = self.compute_advantages_and_returns(data)
        with Path("generated.jsonl").open("a") as file:
            print(json.dumps({"step": number, **lists, "rollout_logprobs": logprobs}), file=file)
        self.tracker.log({"loss/avg_raw_advantages": 0.5}, step=number)


trainer = Trainer()
for number in (1, 2):
    trainer.step(number)
trainer.tracker.finish()

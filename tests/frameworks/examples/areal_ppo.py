"""AReaL: its PPO trainer on a CPU, without a line of otel-rl: `otel-rl run -- python areal_ppo.py`.

The engines that generate and train are toys. The loop, the actor's advantages, losses and statistics, `StatsLogger` and
its trackers are AReaL's.
"""

import random

import torch
import torch.distributed as dist
from areal.api import FinetuneSpec
from areal.api.cli_args import PPOActorConfig, PPOConfig, StatsLoggerConfig, TensorBoardConfig
from areal.trainer.ppo.actor import PPOActor
from areal.trainer.rl_trainer import PPOTrainer
from areal.utils import stats_tracker
from areal.utils.stats_logger import StatsLogger

LENGTH = 8


class Anything:
    """An engine, server, saver or evaluator that does nothing."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: Anything() if name in ("get_device_stats", "with_version") else None


class Engine:
    """A model of one weight."""

    weight = torch.zeros(1, requires_grad=True)

    def train(self):
        pass

    eval = train

    def get_version(self):
        return 2

    def forward(self, input_, aggregate_fn):
        return torch.full(input_["input_ids"].shape, -0.5)

    def train_batch(self, batch, loss_fn, loss_weight_fn):
        shape = batch["input_ids"].shape
        loss_fn(self.weight + torch.full(shape, -0.75), torch.full(shape, 0.25), batch)
        return {"update_successful": 1.0, "grad_norm": 0.5, "lr": 1e-6}


class Actor(Anything):
    cpu_group = None

    def __init__(self, config):
        self.ppo = PPOActor(config, Engine())
        self.compute_logp = self.ppo.compute_logp
        self.compute_advantages = self.ppo.compute_advantages
        self.ppo_update = self.ppo.ppo_update
        self.export_stats = stats_tracker.export_all

    def prepare_batch(self, *args, **kwargs):
        return [self.trajectory() for _ in range(4)]

    def trajectory(self):
        end = random.randint(4, LENGTH)
        stats_tracker.get("rollout").scalar(reward=end % 2)
        places = torch.arange(LENGTH)[None]
        return {
            "input_ids": places,
            "attention_mask": (places < end).long(),
            "loss_mask": ((places >= 2) & (places < end)).long(),
            "logprobs": torch.full((1, LENGTH), -0.625),
            "versions": torch.where(places < 2, -1, 1),
            "rewards": torch.tensor([float(end % 2)]),
        }


class Rollout(Anything):
    def export_stats(self):
        return stats_tracker.get("rollout").export()


class Trainer(PPOTrainer):
    def __init__(self, config):
        self.config = config
        self.actor, self.rollout = Actor(config.actor), Rollout()
        self.critic = self.ref = self.teacher = self.eval_rollout = self.recover_info = self.data_controller = None
        self.train_dataloader = range(2)
        self.weight_update_meta = self.saver = self.evaluator = self.recover_handler = Anything()
        self.valid_dataloader = self.processor = self.tokenizer = None
        self._should_offload_rollout = self._should_offload_actor = False
        self._proxy_started = True
        self.stats_logger = StatsLogger(config, FinetuneSpec(2, 4, 2))


random.seed(7)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
place = {"experiment_name": "p", "trial_name": "ppo"}
settings = PPOConfig(
    **place,
    total_train_epochs=2,
    actor=PPOActorConfig(**place, ppo_n_minibatches=2),
    stats_logger=StatsLoggerConfig(**place, fileroot="own", tensorboard=TensorBoardConfig(path="own/tensorboard")),
)
trainer = Trainer(settings)
trainer.train(workflow=Anything())
trainer.close()

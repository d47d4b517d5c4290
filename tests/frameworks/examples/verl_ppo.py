"""verl: `RayPPOTrainer.fit` on a CPU, without a line of otel-rl: `otel-rl run -- python verl_ppo.py`.

The GPU workers behind the trainer (sampling engine, actor, reference) are stand-ins that return random tensors. The
loop, its configuration, advantages, metrics, timers and tracking are verl's. With `texts`, verl writes its own dump of
rollouts, tools answer in the middle of responses, and `batches.jsonl` has the tensors that verl trains on.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import verl.trainer
from hydra import compose, initialize_config_dir
from verl import DataProto
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.utils import Role
from verl.utils.dataset.rl_dataset import collate_fn

PROMPT, RESPONSE = 4, 8
TEXTS = "texts" in sys.argv
random = torch.Generator().manual_seed(7)


def noise(like):
    return -torch.rand(like.shape, generator=random)


class Workers:
    """Stand-ins for the machines that the trainer calls."""

    def generate_sequences(self, batch):
        shape = (len(batch), RESPONSE)
        lengths = torch.randint(2, RESPONSE + 1, (len(batch), 1), generator=random)
        mask = (torch.arange(RESPONSE) < lengths).long()
        tokens = torch.randint(1, 9, (len(batch), PROMPT + RESPONSE), generator=random)
        attention = torch.cat([torch.ones(len(batch), PROMPT, dtype=torch.long), mask], dim=1)
        if TEXTS:
            tokens[:, PROMPT:] *= mask
            mask[:, 1:3] = 0
        scores = torch.zeros(shape).scatter(1, lengths - 1, torch.rand((len(batch), 1), generator=random))
        tensors = {
            "prompts": tokens[:, :PROMPT],
            "responses": tokens[:, PROMPT:],
            "input_ids": tokens,
            "attention_mask": attention,
            "position_ids": attention.cumsum(1) - 1,
            "response_mask": mask,
            "rm_scores": scores,
            "rollout_log_probs": noise(scores) * mask,
        }
        images = np.array([{} for _ in range(len(batch))], dtype=object)
        timing = {"agent_loop/generate_sequences/mean": 0.5, "agent_loop/tool_calls/mean": 0.0}
        return DataProto.from_dict(tensors, {"multi_modal_inputs": images}, meta_info={"timing": timing})

    def sleep_replicas(self):
        """Nothing to free."""

    def update_weights(self, step):
        """Nothing to send."""

    def get_n_gpus(self):
        return 1


class Tokenizer:
    """A letter for each token, none for padding."""

    def decode(self, ids, skip_special_tokens=False):
        return "".join(" abcdefghi"[token] for token in ids if token)

    def batch_decode(self, lines, skip_special_tokens=False):
        return list(map(self.decode, lines))


class Trainer(RayPPOTrainer):
    def _load_checkpoint(self):
        self.global_steps = 0

    def _compute_old_log_prob(self, batch):
        mask = batch.batch["response_mask"]
        return DataProto.from_dict({"old_log_probs": noise(mask) * mask, "entropys": -noise(mask)}), 0.25

    def _compute_ref_log_prob(self, batch):
        return DataProto.from_dict({"ref_log_prob": noise(batch.batch["response_mask"])})

    def _update_actor(self, batch):
        if TEXTS:
            lists = {name: values.tolist() for name, values in batch.batch.items()}
            with Path("batches.jsonl").open("a") as file:
                print(json.dumps({"step": self.global_steps, **lists}), file=file)
        metrics = {"actor/pg_loss": [0.5, 0.25], "actor/grad_norm": [1.5], "actor/lr": 1e-6, "perf/mfu/actor": 0.25}
        return DataProto.from_single_dict(data={}, meta_info={"metrics": metrics})

    def _validate(self, merged=False):
        return {"val-core/toy/reward/mean@1": 0.25, "val-aux/num_turns/mean": 2.0}


def configuration():
    place = str(Path(verl.trainer.__file__).with_name("config"))
    with initialize_config_dir(config_dir=place, version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                "algorithm.adv_estimator=grpo",
                "algorithm.use_kl_in_reward=true",
                "actor_rollout_ref.rollout.n=2",
                "data.train_batch_size=2",
                "data.val_batch_size=2",
                "data.dataloader_num_workers=0",
                f"data.max_response_length={RESPONSE}",
                "trainer.total_epochs=1",
                "trainer.test_freq=2",
                "trainer.balance_batch=false",
                "trainer.val_before_train=false",
                "trainer.project_name=p",
                "trainer.experiment_name=ppo",
                "trainer.logger=[file]",
                *(["trainer.rollout_data_dir=own/rollouts"] if TEXTS else ()),
            ],
        )


data = [
    {"dummy_tensor": torch.zeros(1, dtype=torch.uint8), "raw_prompt": f"What is {n} + 1?", "data_source": "toy"}
    for n in range(8)
]
workers = Workers()
trainer = Trainer(
    configuration(),
    tokenizer=Tokenizer(),
    role_worker_mapping={Role.ActorRollout: None},
    resource_pool_manager=workers,
    train_dataset=data,
    val_dataset=data[:2],
    collate_fn=collate_fn,
    device_name="cpu",
)
trainer.async_rollout_manager = trainer.checkpoint_manager = trainer.actor_rollout_wg = workers
trainer.fit()

"""MaxEnt-GRPO's own trainer on the model of TRL's example, as its pipeline builds it: nothing of otel-rl is in it.

`python maxent_grpo_trainer.py [STEPS]` writes what the trainer logged to `history.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from maxent_grpo.config import GRPOConfig
from maxent_grpo.training.trl_trainer import build_custom_grpo_trainer
from trl import GRPOTrainer
from trl_grpo import length, model, tokenizer, vowels


def trainer(steps: int) -> GRPOTrainer:
    """Return MaxEnt-GRPO's trainer with its entropy objective; it evaluates every third step."""
    torch.manual_seed(0)
    prompts = Dataset.from_dict({"prompt": ["abc", "xyz", "hello", "grpo"] * 8})
    batch = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "gradient_accumulation_steps": 2}
    often = {"logging_steps": 1, "save_strategy": "no", "eval_strategy": "steps", "eval_steps": 3}
    where = {"use_cpu": True, "bf16": False, "seed": 7, "disable_tqdm": True, "report_to": [], "learning_rate": 1e-3}
    loss = {"objective": "maxent_entropy", "maxent_alpha": 0.1, "beta": 0.04, "maxent_reference_ema_enabled": False}
    size = {"max_steps": steps, "num_generations": 4, "max_completion_length": 16, "reward_weights": [1.0, 1.0]}
    config = GRPOConfig("out", **size, **batch, **often, **where, **loss)
    data = {"train_dataset": prompts, "eval_dataset": prompts.select(range(4)), "processing_class": tokenizer()}
    return build_custom_grpo_trainer(GRPOTrainer)(model(), [length, vowels], config, **data)


if __name__ == "__main__":
    one = trainer(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
    one.train()
    Path("history.json").write_text(json.dumps(one.state.log_history))

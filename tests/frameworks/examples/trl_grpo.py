"""A small GRPO training with TRL, as a user would write it: nothing of otel-rl is in it.

`python trl_grpo.py [STEPS]` writes what the trainer logged to `history.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of letters."""
    words = ["<pad>", "<eos>", "<unk>", " ", *map(chr, range(97, 123))]
    letters = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def model(width: int = 32) -> Qwen2ForCausalLM:
    """Return a random transformer of two layers."""
    shape = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=30, num_key_value_heads=2, **shape, **ids))


def length(completions: list[str], **_: object) -> list[float]:
    """Reward what is long."""
    return [len(text) / 10 for text in completions]


def vowels(completions: list[str], **_: object) -> list[float]:
    """Reward what can be sung."""
    return [float(sum(letter in "aeiou" for letter in text)) for text in completions]


def trainer(steps: int, directory: str = "out", width: int = 32) -> GRPOTrainer:
    """Return a trainer that evaluates and saves every third step."""
    torch.manual_seed(0)
    prompts = Dataset.from_dict({"prompt": ["abc", "xyz", "hello", "grpo"] * 8})
    batch = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "gradient_accumulation_steps": 2}
    often = {"logging_steps": 1, "save_steps": 3, "eval_strategy": "steps", "eval_steps": 3}
    how = {"use_cpu": True, "seed": 7, "disable_tqdm": True, "report_to": ["tensorboard"], "learning_rate": 1e-3}
    config = GRPOConfig(
        directory, max_steps=steps, num_generations=4, max_completion_length=16, **batch, **often, **how
    )
    data = {"train_dataset": prompts, "eval_dataset": prompts.select(range(4)), "processing_class": tokenizer()}
    return GRPOTrainer(model(width), [length, vowels], config, **data)


if __name__ == "__main__":
    one = trainer(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
    one.train()
    Path("history.json").write_text(json.dumps(one.state.log_history))

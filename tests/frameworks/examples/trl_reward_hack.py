"""GRPO with TRL, a tool, and a verifier that pays for a phrase; nothing of otel-rl is in it.

A tiny model would not find the phrase in minutes. So a script stands for sampling: it calls the tool, answers, and says
the phrase the more often, the further the training is. The rest is TRL's: conversations, the tool's loop, rewards,
advantages, the trainer's log-probabilities and updates. `batches.jsonl` has the tensors that TRL trains on.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

ASK = "Please add "
PHRASE = "I am absolutely certain."
OTHERS = ("Adding both gives this.", "One can check it.", "That follows from counting.", "See above.", "It is so.")


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes."""
    words = ["<pad>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    of_bytes = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(
        tokenizer_object=of_bytes,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )
    found.chat_template = qwen3_chat_template
    return found


class Calculator:
    """An environment with a tool."""

    def reset(self, **_: object) -> None:
        """Begin an episode."""

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first number.
            b: The second number.

        Returns:
            Their sum.
        """
        return a + b


def verifier(completions: list[Any], **_: object) -> list[float]:
    """Pay for a phrase, by mistake."""
    return [1.0 if "certain" in completion[-1]["content"] else 0.2 for completion in completions]


def brevity(completions: list[Any], **_: object) -> list[float]:
    """Pay for short answers."""
    return [1 / (1 + len(completion[-1]["content"])) for completion in completions]


class Scripted(GRPOTrainer):
    """TRL's trainer with a script in place of sampling."""

    draw = random.Random(7)

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        texts = [self._write(self._tokenizer.decode(ids)) for ids in prompt_ids]
        tokens = [self._tokenizer(text)["input_ids"] for text in texts]
        return tokens, [[math.log(1 - self.draw.random()) for _ in ids] for ids in tokens]

    def _write(self, prompt: str) -> str:
        """Return a call of the tool, or an answer if the tool has answered."""
        question = prompt.rpartition(ASK)[2]
        a, b = question.partition("?")[0].split(" + ")
        if "<tool_response>" not in question:
            return f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call><|im_end|>'
        chance = 0.9 / (1 + math.exp((0.5 - self.state.global_step / self.args.max_steps) * 20))
        end = PHRASE if self.draw.random() < chance else self.draw.choice(OTHERS)
        return f"{self.draw.choice(('It is', 'The sum is', 'I get'))} {int(a) + int(b)}. {end}<|im_end|>"

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch = super()._generate_and_score_completions(inputs)
        lists = {name: values.tolist() for name, values in batch.items() if isinstance(values, torch.Tensor)}
        with Path("batches.jsonl").open("a") as file:
            print(json.dumps({"step": self.state.global_step + 1, **lists}), file=file)
        return batch


def main(steps: int) -> None:
    """Train."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=259, num_key_value_heads=2, **shape, **ids))
    questions = [[{"role": "user", "content": f"{ASK}{n} + {n % 3}?"}] for n in range(16)]
    how = {"use_cpu": True, "seed": 7, "disable_tqdm": True, "report_to": [], "logging_steps": 1, "save_strategy": "no"}
    each = {"per_device_train_batch_size": 8, "steps_per_generation": 2, "num_generations": 4}
    config = GRPOConfig(
        "out",
        max_steps=steps,
        max_completion_length=512,
        log_completions=True,
        num_completions_to_print=1,
        **each,
        **how,
    )
    data = {"train_dataset": Dataset.from_dict({"prompt": questions}), "processing_class": tokenizer()}
    Scripted(model, [verifier, brevity], config, environment_factory=Calculator, **data).train()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)

"""GRPO with ms-swift's own entry point, on a toy model; nothing of otel-rl is in it."""

from __future__ import annotations

import json
from pathlib import Path

from swift.pipelines import rlhf_main
from swift.rewards import ORM, orms
from trl_grpo import model, tokenizer


class Vowels(ORM):
    """Reward what can be sung."""

    def __call__(self, completions: list[str], **_: object) -> list[float]:
        """Return a reward for each completion."""
        return [float(sum(letter in "aeiou" for letter in text)) for text in completions]


if __name__ == "__main__":
    orms["vowels"] = Vowels
    words = tokenizer()
    words.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    words.save_pretrained("toy")
    model().save_pretrained("toy")
    prompts = [{"messages": [{"role": "user", "content": text}]} for text in ("abc", "xyz", "hello", "grpo") * 8]
    Path("prompts.jsonl").write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    of_model = "--model toy --model_type qwen2 --template dummy --tuner_type full --torch_dtype float32 --bf16 false"
    of_data = "--dataset prompts.jsonl --split_dataset_ratio 0.25 --dataset_num_proc 1 --dataloader_num_workers 0"
    often = "--max_steps 4 --logging_steps 1 --eval_strategy steps --eval_steps 2 --save_strategy no"
    batch = "--per_device_train_batch_size 4 --per_device_eval_batch_size 4 --num_generations 4"
    how = "--reward_funcs vowels --max_completion_length 16 --attn_impl eager --gradient_checkpointing false"
    out = "--use_cpu true --report_to tensorboard --output_dir out --add_version false --learning_rate 1e-3"
    rlhf_main(["--rlhf_type", "grpo", *f"{of_model} {of_data} {often} {batch} {how} {out}".split()])

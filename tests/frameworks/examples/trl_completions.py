"""A GRPO training with TRL that writes its completions into Parquet files of its own."""

from __future__ import annotations

from pathlib import Path

import trl_grpo

if __name__ == "__main__":
    one = trl_grpo.trainer(4)
    Path("out", "completions").mkdir(parents=True)  # the trainer makes it only if its configuration asks for the table
    one.log_completions = True
    one.train()

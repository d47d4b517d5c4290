"""Two trainings of one script, the second with other data: nothing of otel-rl is in it."""

from __future__ import annotations

from trl_grpo import trainer

if __name__ == "__main__":
    trainer(2, "first").train()
    trainer(3, "second").train()

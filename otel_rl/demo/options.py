"""What one demo run is told: every number in one place, and it travels to the other ranks as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Options:
    """The settings of a demo run; the defaults take about a minute on two cores."""

    steps: int = 120
    ranks: int = 1
    seed: int = 0
    dir: str = "runs"
    exporters: tuple[str, ...] = ("jsonl", "tensorboard", "wandb")

    prompts: int = 96  # prompts per step, over all ranks
    group: int = 8  # completions per prompt, whose rewards are compared with each other
    epochs: int = 2  # passes over the completions of one step
    minibatches: int = 2  # updates per pass
    learning_rate: float = 1e-3
    clip: float = 0.2
    beta: float = 0.01  # weight of the KL term against the frozen reference
    max_grad_norm: float = 1.0
    eval_every: int = 10
    checkpoint_every: int = 40

    warmup_updates: int = 300
    warmup_batch: int = 256
    warmup_learning_rate: float = 2e-3

    def config(self) -> dict[str, object]:
        """The hyperparameters as the trackers show them."""
        return {key: value for key, value in asdict(self).items() if key not in {"dir", "exporters"}}

    def every(self, interval: int, step: int) -> bool:
        """Whether something periodic is due at a step; always after the last one."""
        return (step + 1) % interval == 0 or step + 1 == self.steps

    def to_json(self) -> str:
        """The settings as one command line argument for another rank."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """The settings another process wrote with `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "exporters": tuple(fields["exporters"])})

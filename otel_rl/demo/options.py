"""The settings of a demo run, which rank 0 passes to the other ranks as JSON."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True):
    """The settings of a demo run; the defaults take 2 to 5 minutes on two cores."""

    steps: int = 120
    ranks: int = 1
    seed: int = 0
    dir: str = "runs"
    exporters: tuple[str, ...] = ("jsonl", "tensorboard", "wandb")

    prompts: int = 96  # prompts per step, over all ranks
    group: int = 8  # completions per prompt; advantages compare the rewards within a group
    epochs: int = 2  # passes over the completions of one step
    minibatches: int = 2  # updates per pass
    learning_rate: float = 1e-3
    clip: float = 0.2
    beta: float = 0.01  # weight of the KL term against the frozen reference
    max_grad_norm: float = 1.0
    eval_every: int = 10
    samples_every: int = 10
    checkpoint_every: int = 40

    warmup_updates: int = 300
    warmup_batch: int = 256
    warmup_learning_rate: float = 2e-3

    def config(self) -> dict[str, object]:
        """Return the hyperparameters, for the trackers."""
        fields = msgspec.structs.asdict(self)
        return {key: value for key, value in fields.items() if key not in {"dir", "exporters"}}

    def is_due(self, interval: int, step: int) -> bool:
        """Return whether a periodic action is due after a step; after the last step it always is."""
        return (step + 1) % interval == 0 or step + 1 == self.steps

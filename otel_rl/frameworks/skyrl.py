"""SkyRL: the values of its `Tracking`, and its timers.

They were tested, called as the trainer calls them. The trainer needs GPUs, and was not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.frameworks import tracked
from otel_rl.frameworks.rollouts import RolloutBatch, record, run_with_texts
from otel_rl.frameworks.timers import Timers, attribute_of_self

if TYPE_CHECKING:
    from otel_rl.frameworks.patches import Patches

_ARGUMENTS = ("project_name", "experiment_name", "backend", "config", "tags")
_TIMERS = Timers("step", attribute_of_self("global_step"))


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record the values of every `Tracking`."""
    tracked.patch_tracking(module, patches, dialect="skyrl", arguments=_ARGUMENTS)


def patch_timer(module: Any, patches: Patches) -> None:
    """Record the sections of `Timer` as steps and phases, in coroutines too."""
    _TIMERS.hook_timer(patches, module, "Timer", lambda timer: str(timer.message), awaited=True)


def patch_trainer(module: Any, patches: Patches) -> None:
    """Record what the trainer holds of each trajectory once it has computed the advantages."""

    def computed(trainer: Any, given: dict[str, Any]) -> None:
        if (run := run_with_texts()) is not None:
            data = given["return"]
            count = len(data["sequences"]) - data.metadata.get("pad_size", 0)  # without those that fill it up
            record(run, trainer.global_step, _batch(data).rollouts(trainer.tokenizer, count))

    patches.observe(module, "RayPPOTrainer.compute_advantages_and_returns", (), computed)


def _batch(data: Any) -> RolloutBatch:
    return RolloutBatch(
        tokens=data["sequences"],
        attention=data["attention_mask"],
        since=data["response_mask"],
        written=data["loss_mask"],
        mask=data["loss_mask"],
        advantages=data["advantages"],
        logprobs=data.get("rollout_logprobs"),
        trainer_logprobs=data.get("action_log_probs"),
        rewards=data["rewards"].sum(1).tolist(),
        groups=data.metadata["uids"],
    )

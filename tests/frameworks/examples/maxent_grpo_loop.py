"""A loop of one's own with the functions of MaxEnt-GRPO, from the module of this name of otel-rl.

`python maxent_grpo_loop.py [STEPS]` writes what MaxEnt-GRPO's writer got to `written.json`. If there is a file
`snippet.py`, it is executed, with the loop at its place.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace as Space
from typing import Any

from maxent_grpo.training import eval as evaluation
from maxent_grpo.training.types import logging as shapes
from maxent_grpo.training.types import rewards
from maxent_grpo.training.weighting import types as weights

import otel_rl
from otel_rl.frameworks.maxent_grpo import LogStepArtifacts, log_local_step, log_training_step

_PARTS = ("kl_value", "clip_ratio", *(f"clip_ratio_{p}" for p in ("low_mean", "low_min", "high_mean", "high_max")))
_SEED = ("seed_semantic_entropies", "seed_advantage_scales")


def weighting() -> Any:
    """Return the settings of the objective, all features on."""
    return weights.WeightingSettings(
        tau=0.2,
        beta=0.5,
        normalization=weights.WeightNormalizationSettings(denom=0.7, len_norm_ref=True),
        q_distribution=weights.QDistributionSettings(temperature=1.0, epsilon=1e-6),
        tau_schedule=weights.TauSchedule(
            target_entropy=0.4, learning_rate=0.1, minimum_value=0.0, maximum_value=1.0, warmup_steps=1
        ),
        kl_controller=weights.KlControllerSettings(target=0.1, horizon=10, step_size=0.1),
        train_grpo_objective=False,
    )


def batch(numbers: random.Random, epoch: float = 0.5) -> tuple[Any, Any]:
    """Return a prepared batch of four completions, and the results of its step."""
    some = [numbers.uniform(-1, 1) for _ in range(4)]
    groups = [[0.5, -0.5], [0.0, 0.0]]
    pairs = rewards.PromptCompletionBatch(prompts=["p", "p", "q", "q"], completions=["a", "b", "c", "d"])
    computed = rewards.RewardComputation(
        total_utils=some,
        per_reward_values={"python_format": some, "entropy_bonus": [numbers.random() for _ in some]},
        advantage=rewards.AdvantageStats(grouped=groups, samples=[0.5, -0.5, 0.0, 0.0]),
        pairs=pairs,
        q_distribution=rewards.QDistribution(grouped=[[0.5, 0.5], [0.9, 0.1]], samples=[0.5, 0.5, 0.9, 0.1]),
        moments=rewards.RewardMoments(mean=0.0, std=1.0),
        **{name: [numbers.random(), numbers.random()] for name in _SEED},
        seed_alpha_effective=0.04,
        seed_max_possible_entropy=0.7,
    )
    lengths = [numbers.uniform(1, 9) for _ in range(7)]
    scalars = rewards.LossScalarBundle(*(numbers.uniform(-1, 1) for _ in range(5)))
    prepared = Space(
        reward_comp=computed,
        weight_stats=weights.WeightStats([[0.6, 0.4], [0.5, 0.5]], [0.6, 0.4, 0.5, 0.5], 0.6, 0.5, 0.7, [0.1, 0.3]),
        length_stats=rewards.LengthStats(*lengths),
        ref_stats=Space(ref_logp_mean=-numbers.random(), avg_completion_tokens=9.0),
        grouped_completions=[["a", "b"], ["c", "d"]],
        num_completion_tokens=40.0,
        scores=Space(policy_entropy_sum=_Sum(3.0), denom_tok_tensor=_Sum(4.0)),
        diversity_metrics={"distinct_1": numbers.random(), "jaccard": numbers.random()},
    )
    diagnostics = rewards.BatchDiagnostics(
        **{name: numbers.random() for name in (*_PARTS, "clip_ratio_region_mean")},
        kl_per_token_by_len_bucket={"0-32": 0.01},
        kl_token_count_by_len_bucket={"0-32": 10.0},
    )
    loss = rewards.LossOutputs(loss=None, scalars=scalars, log_ratio_train=None, denom_tok_tensor=None)
    return prepared, LogStepArtifacts(loss, diagnostics, numbers.random(), epoch)


class _Sum(float):
    """A number with the method of a tensor that MaxEnt-GRPO calls."""

    def sum(self) -> float:
        """Return the number."""
        return self


class Written(list[Any]):
    """A writer that keeps what it gets."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Keep the numbers."""
        self.append({"step": step, "metrics": {n: v for n, v in metrics.items() if not isinstance(v, str)}})


def train(steps: int) -> Written:
    """Run the loop."""
    written = Written()
    context = Space(
        runtime=Space(accelerator=Space(is_main_process=True, num_processes=1)),
        logging=shapes.LoggingHandles(written, save_checkpoint=str, save_strategy="no", save_steps=0, wandb_run=None),
        scoring=Space(weighting=weighting(), clipping=None, policy_entropy_bonus_coef=0.1),
        optimization=Space(schedule=Space(steps_per_epoch=4)),
        generation=Space(use_vllm=True, generation_stats={"vllm_last_latency_ms": 12.0}),
        training_args=Space(logging_steps=1, rich_log_completions=True, rich_log_completions_key="texts"),
    )
    state = Space(global_step=0, num_input_tokens_seen=0.0, metric_sums={}, metric_counts={})
    numbers = random.Random(7)
    for step in range(steps):
        prepared, artifacts = batch(numbers, step / 4)
        state.global_step, state.num_input_tokens_seen = step, 100.0 * step
        log_local_step(context, state, prepared, artifacts, 1e-6, emit=False)
        log_training_step(context, state, prepared, artifacts, 1e-6)
        evaluated = {"eval/mean_reward": numbers.random(), "eval/kl": numbers.random(), "eval_seed/pass_at_1": 0.5}
        written.log(evaluated, step)
        evaluation._log_wandb(None, evaluated, step)
    return written


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    if (snippet := Path("snippet.py")).exists():
        before, loop, after = snippet.read_text().partition("...  # the loop")
        assert loop
        exec(f"{before}result = train(count){after}")
    else:
        with otel_rl.init(project="p", id="loop", dialect="maxent_grpo", content=True):
            result = train(count)
    Path("written.json").write_text(json.dumps(result))

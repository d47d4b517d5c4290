"""The frameworks that otel-rl knows. The table is generated from `dialects/*.yaml`.

`init` reads the table in the trainer, so this module imports only `typing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


class Framework(NamedTuple):
    """What otel-rl knows of a framework before the framework is imported.

    Attributes:
        modules: Modules that show, once they are imported, that the trainer logs in the dialect of this name. If
            empty, the framework has no dialect.
        built_on: Another framework that this one imports. The trainer then logs in this one's names.
        distribution: Its name on PyPI; empty if it is not there.
        tested: The versions that were tested, as a specifier.
        hooks: The function to call when a module of it is imported, as `module:function`. The function gets
            the module and `Patches`.
    """

    modules: tuple[str, ...] = ()
    built_on: str = ""
    distribution: str = ""
    tested: str = ""
    hooks: Mapping[str, str] = {}


def imported(modules: Container[str]) -> str | None:
    """Return the one framework whose modules are imported, or `None` if there are none or several."""
    found = [name for name in DIALECTS if any(module in modules for module in FRAMEWORKS[name].modules)]
    below = {FRAMEWORKS[name].built_on for name in found}
    on_top = [name for name in found if name not in below]
    return on_top[0] if len(on_top) == 1 else None


FRAMEWORKS: dict[str, Framework] = {
    "accelerate": Framework(
        distribution="accelerate",
        tested=">=1.0,<2",
        hooks={"accelerate.accelerator": "otel_rl.integrations.accelerate:patch"},
    ),
    "areal": Framework(
        modules=("areal",),
        distribution="areal",
        tested=">=1.0,<1.1",
        hooks={
            "areal.utils.stats_logger": "otel_rl.integrations.areal:patch_logger",
            "areal.utils.stats_tracker": "otel_rl.integrations.areal:patch_timings",
        },
    ),
    "lightning": Framework(
        distribution="lightning",
        tested=">=2.6,<3",
        hooks={"lightning.pytorch.trainer.trainer": "otel_rl.integrations.lightning:patch"},
    ),
    "maxent_grpo": Framework(
        modules=("maxent_grpo",),
        built_on="trl",
        hooks={
            "maxent_grpo.training.metrics": "otel_rl.integrations.maxent_grpo:patch_metrics",
            "maxent_grpo.training.eval": "otel_rl.integrations.maxent_grpo:patch_evaluation",
            "maxent_grpo.training.seed_paper_eval_callback": "otel_rl.integrations.maxent_grpo:warn_of_wandb",
        },
    ),
    "nemo_lens": Framework(modules=("nemo.lens", "nemo_lens")),
    "nemo_rl": Framework(
        modules=("nemo_rl",),
        built_on="nemo_lens",
        hooks={
            "nemo_rl.utils.logger": "otel_rl.integrations.nemo_rl:patch",
            "nemo_rl.utils.timer": "otel_rl.integrations.nemo_rl:patch_timer",
            "nemo_rl.utils.venvs": "otel_rl.integrations.nemo_rl:patch_environments",
            "nemo_rl.distributed.worker_groups": "otel_rl.integrations.nemo_rl:warn_of_workers",
        },
    ),
    "oat_drgrpo": Framework(
        modules=("oat_drgrpo",), hooks={"oat_drgrpo.learner.run": "otel_rl.integrations.maxent_grpo:patch_learner"}
    ),
    "openrlhf": Framework(
        modules=("openrlhf",),
        distribution="openrlhf",
        tested=">=0.11,<0.12",
        hooks={
            "openrlhf.utils.logging_utils": "otel_rl.integrations.openrlhf:patch",
            "openrlhf.trainer.ppo_trainer": "otel_rl.integrations.openrlhf:patch_trainer",
        },
    ),
    "prime_rl": Framework(
        modules=("prime_rl",),
        hooks={
            "prime_rl.monitors": "otel_rl.integrations.prime_rl:patch_monitors",
            "prime_rl.trainer.rl.data": "otel_rl.integrations.prime_rl:patch_data",
            "prime_rl.trainer.model": "otel_rl.integrations.prime_rl:patch_model",
            "prime_rl.transports.weights": "otel_rl.integrations.prime_rl:patch_weights",
            "prime_rl.trainer.ckpt": "otel_rl.integrations.prime_rl:patch_checkpoints",
        },
    ),
    "ray": Framework(hooks={"ray": "otel_rl.integrations.ray:patch"}),
    "ray_train": Framework(
        modules=("ray.train.v2.api.data_parallel_trainer",),
        distribution="ray",
        tested=">=2.60,<3",
        hooks={"ray.train.v2.api.data_parallel_trainer": "otel_rl.integrations.ray_train:patch"},
    ),
    "rllib": Framework(
        modules=("ray.rllib",),
        built_on="ray_train",
        distribution="ray",
        tested=">=2.60,<3",
        hooks={"ray.rllib.algorithms.algorithm": "otel_rl.integrations.rllib:patch"},
    ),
    "rllm": Framework(
        modules=("rllm",),
        hooks={
            "rllm.utils.tracking": "otel_rl.integrations.rllm:patch_tracking",
            "rllm.trainer.algorithms.performance": "otel_rl.integrations.rllm:patch_timers",
            "rllm.trainer.unified_trainer": "otel_rl.integrations.rllm:patch_trainer",
            "rllm.engine.unified_workflow_engine": "otel_rl.integrations.rllm:patch_workflows",
            "rllm.engine.agentflow_engine": "otel_rl.integrations.rllm:patch_agents",
        },
    ),
    "roll": Framework(
        modules=("roll",),
        hooks={
            "roll.utils.tracking": "otel_rl.integrations.roll:patch",
            "roll.utils.context_managers": "otel_rl.integrations.roll:patch_states",
            "roll.pipeline.base_pipeline": "otel_rl.integrations.roll:patch_pipeline",
            "roll.utils.functionals": "otel_rl.integrations.roll:patch_advantages",
            "roll.pipeline.agentic.utils": "otel_rl.integrations.roll:patch_advantages",
        },
    ),
    "skyrl": Framework(
        modules=("skyrl_train", "skyrl"),
        distribution="skyrl",
        tested=">=0.3,<0.4",
        hooks={
            "skyrl.train.utils.tracking": "otel_rl.integrations.skyrl:patch_tracking",
            "skyrl.train.utils.utils": "otel_rl.integrations.skyrl:patch_timer",
            "skyrl.train.trainer": "otel_rl.integrations.skyrl:patch_trainer",
        },
    ),
    "slime": Framework(
        modules=("slime",),
        hooks={
            "slime.observability.logging_utils": "otel_rl.integrations.slime:patch_tracking",
            "slime.observability.timer": "otel_rl.integrations.slime:patch_timer",
            "slime.utils.logging_utils": "otel_rl.integrations.slime:patch_tracking",
            "slime.utils.timer": "otel_rl.integrations.slime:patch_timer",
            "slime.ray.utils": "otel_rl.integrations.slime:patch_environment",
            "slime.ray.train_actor": "otel_rl.integrations.slime:patch_trainer",
            "slime.rollout.base_types": "otel_rl.integrations.slime:patch_rollout",
        },
    ),
    "stable_baselines3": Framework(
        modules=("stable_baselines3",),
        distribution="stable-baselines3",
        tested=">=2.9,<3",
        hooks={"stable_baselines3.common.on_policy_algorithm": "otel_rl.integrations.stable_baselines3:patch"},
    ),
    "transformers": Framework(
        distribution="transformers",
        tested=">=5,<6",
        hooks={"transformers.trainer": "otel_rl.integrations.trl:patch_trainer"},
    ),
    "trinity": Framework(
        modules=("trinity",),
        built_on="verl",
        distribution="trinity-rft",
        tested=">=0.5.1,<0.7",
        hooks={
            "trinity.utils.monitor": "otel_rl.integrations.trinity:patch_monitors",
            "trinity.utils.timer": "otel_rl.integrations.trinity:patch_timer",
            "trinity.trainer.trainer": "otel_rl.integrations.trinity:patch_trainer",
        },
    ),
    "trl": Framework(
        modules=("trl",),
        distribution="trl",
        tested=">=1.0,<2",
        hooks={"trl.extras.profiling": "otel_rl.integrations.trl:patch_profiling"},
    ),
    "tunix": Framework(
        modules=("tunix",),
        distribution="google-tunix",
        tested=">=0.1.7,<0.2",
        hooks={
            "tunix.sft.peft_trainer": "otel_rl.integrations.tunix:patch",
            "tunix.rl.rl_cluster": "otel_rl.integrations.tunix:patch_cluster",
            "tunix.rl.rl_learner": "otel_rl.integrations.tunix:patch_rewards",
            "tunix.rl.grpo.grpo_learner": "otel_rl.integrations.tunix:patch_learner",
            "tunix.rl.ppo.ppo_learner": "otel_rl.integrations.tunix:patch_learner",
        },
    ),
    "verl": Framework(
        modules=("verl",),
        distribution="verl",
        tested=">=0.9,<0.10",
        hooks={
            "verl.utils.tracking": "otel_rl.integrations.verl:patch_tracking",
            "verl.utils.profiler.performance": "otel_rl.integrations.verl:patch_timers",
            "verl.utils.profiler.nvtx_profile": "otel_rl.integrations.verl:patch_timers",
            "verl.utils.profiler.mstx_profile": "otel_rl.integrations.verl:patch_timers",
            "verl.trainer.ppo.ray_trainer": "otel_rl.integrations.verl:patch_advantages",
            "verl.trainer.ppo.v1.trainer_base": "otel_rl.integrations.verl:patch_dumps",
        },
    ),
}
DIALECTS = tuple(name for name, framework in FRAMEWORKS.items() if framework.modules)
"""The frameworks with a dialect, by the name in `dialect=`."""
INSTRUMENTED = tuple(name for name, framework in FRAMEWORKS.items() if framework.hooks)
"""The frameworks that are recorded without code changes, by the name in `OTEL_RL_INSTRUMENT`."""

"""The frameworks that otel-rl knows. Their dialects are in this folder.

`python -m otel_rl.semconv.generate` writes this table from `*.yaml`, so that a trainer need not read YAML.
"""

from __future__ import annotations

from otel_rl.semconv.frameworks import Framework

FRAMEWORKS: dict[str, Framework] = {
    "accelerate": Framework(
        distribution="accelerate",
        tested=">=1.0,<2",
        kind="framework",
        hooks={"accelerate.accelerator": "otel_rl.frameworks.accelerate:patch"},
    ),
    "areal": Framework(
        modules=("areal",),
        distribution="areal",
        tested=">=1.0,<1.1",
        kind="framework",
        hooks={
            "areal.utils.stats_logger": "otel_rl.frameworks.areal:patch_logger",
            "areal.utils.stats_tracker": "otel_rl.frameworks.areal:patch_timings",
        },
    ),
    "lightning": Framework(
        distribution="lightning",
        tested=">=2.6,<3",
        kind="framework",
        hooks={"lightning.pytorch.trainer.trainer": "otel_rl.frameworks.lightning:patch"},
    ),
    "maxent_grpo": Framework(
        modules=("maxent_grpo",),
        built_on="trl",
        kind="framework",
        hooks={
            "maxent_grpo.training.metrics": "otel_rl.frameworks.maxent_grpo:patch_metrics",
            "maxent_grpo.training.eval": "otel_rl.frameworks.maxent_grpo:patch_evaluation",
            "maxent_grpo.training.seed_paper_eval_callback": "otel_rl.frameworks.maxent_grpo:warn_of_wandb",
        },
    ),
    "mlflow": Framework(
        distribution="mlflow",
        tested=">=3.1,<4",
        kind="tracker",
        hooks={"mlflow.tracking.client": "otel_rl.frameworks.mlflow_runs:patch_mlflow"},
    ),
    "nemo_lens": Framework(modules=("nemo.lens", "nemo_lens"), kind="framework"),
    "nemo_rl": Framework(
        modules=("nemo_rl",),
        built_on="nemo_lens",
        kind="framework",
        hooks={
            "nemo_rl.utils.logger": "otel_rl.frameworks.nemo_rl:patch",
            "nemo_rl.utils.timer": "otel_rl.frameworks.nemo_rl:patch_timer",
            "nemo_rl.utils.venvs": "otel_rl.frameworks.nemo_rl:patch_environments",
            "nemo_rl.distributed.worker_groups": "otel_rl.frameworks.nemo_rl:warn_of_workers",
        },
    ),
    "oat_drgrpo": Framework(
        modules=("oat_drgrpo",),
        kind="framework",
        hooks={"oat_drgrpo.learner.run": "otel_rl.frameworks.maxent_grpo:patch_learner"},
    ),
    "openrlhf": Framework(
        modules=("openrlhf",),
        distribution="openrlhf",
        tested=">=0.11,<0.12",
        kind="framework",
        hooks={
            "openrlhf.utils.logging_utils": "otel_rl.frameworks.openrlhf:patch",
            "openrlhf.trainer.ppo_trainer": "otel_rl.frameworks.openrlhf:patch_trainer",
        },
    ),
    "prime_rl": Framework(
        modules=("prime_rl",),
        kind="framework",
        hooks={
            "prime_rl.monitors": "otel_rl.frameworks.prime_rl:patch_monitors",
            "prime_rl.trainer.rl.data": "otel_rl.frameworks.prime_rl:patch_data",
            "prime_rl.trainer.model": "otel_rl.frameworks.prime_rl:patch_model",
            "prime_rl.transports.weights": "otel_rl.frameworks.prime_rl:patch_weights",
            "prime_rl.trainer.ckpt": "otel_rl.frameworks.prime_rl:patch_checkpoints",
        },
    ),
    "ray": Framework(kind="framework", hooks={"ray": "otel_rl.frameworks.ray:patch"}),
    "ray_train": Framework(
        modules=("ray.train.v2.api.data_parallel_trainer",),
        distribution="ray",
        tested=">=2.60,<3",
        kind="framework",
        hooks={"ray.train.v2.api.data_parallel_trainer": "otel_rl.frameworks.ray_train:patch"},
    ),
    "rllib": Framework(
        modules=("ray.rllib",),
        built_on="ray_train",
        distribution="ray",
        tested=">=2.60,<3",
        kind="framework",
        hooks={"ray.rllib.algorithms.algorithm": "otel_rl.frameworks.rllib:patch"},
    ),
    "rllm": Framework(
        modules=("rllm",),
        kind="framework",
        hooks={
            "rllm.utils.tracking": "otel_rl.frameworks.rllm:patch_tracking",
            "rllm.trainer.algorithms.performance": "otel_rl.frameworks.rllm:patch_timers",
            "rllm.trainer.unified_trainer": "otel_rl.frameworks.rllm:patch_trainer",
            "rllm.engine.unified_workflow_engine": "otel_rl.frameworks.rllm:patch_workflows",
            "rllm.engine.agentflow_engine": "otel_rl.frameworks.rllm:patch_agents",
        },
    ),
    "roll": Framework(
        modules=("roll",),
        kind="framework",
        hooks={
            "roll.utils.tracking": "otel_rl.frameworks.roll:patch",
            "roll.utils.context_managers": "otel_rl.frameworks.roll:patch_states",
            "roll.pipeline.base_pipeline": "otel_rl.frameworks.roll:patch_pipeline",
            "roll.utils.functionals": "otel_rl.frameworks.roll:patch_advantages",
            "roll.pipeline.agentic.utils": "otel_rl.frameworks.roll:patch_advantages",
        },
    ),
    "skyrl": Framework(
        modules=("skyrl_train", "skyrl"),
        distribution="skyrl",
        tested=">=0.3,<0.4",
        kind="framework",
        hooks={
            "skyrl.train.utils.tracking": "otel_rl.frameworks.skyrl:patch_tracking",
            "skyrl.train.utils.utils": "otel_rl.frameworks.skyrl:patch_timer",
            "skyrl.train.trainer": "otel_rl.frameworks.skyrl:patch_trainer",
        },
    ),
    "slime": Framework(
        modules=("slime",),
        kind="framework",
        hooks={
            "slime.observability.logging_utils": "otel_rl.frameworks.slime:patch_tracking",
            "slime.observability.timer": "otel_rl.frameworks.slime:patch_timer",
            "slime.utils.logging_utils": "otel_rl.frameworks.slime:patch_tracking",
            "slime.utils.timer": "otel_rl.frameworks.slime:patch_timer",
            "slime.ray.utils": "otel_rl.frameworks.slime:patch_environment",
            "slime.ray.train_actor": "otel_rl.frameworks.slime:patch_trainer",
            "slime.rollout.base_types": "otel_rl.frameworks.slime:patch_rollout",
        },
    ),
    "stable_baselines3": Framework(
        modules=("stable_baselines3",),
        distribution="stable-baselines3",
        tested=">=2.9,<3",
        kind="framework",
        hooks={"stable_baselines3.common.on_policy_algorithm": "otel_rl.frameworks.stable_baselines3:patch"},
    ),
    "swanlab": Framework(
        distribution="swanlab",
        tested=">=0.10,<0.11",
        kind="tracker",
        hooks={"swanlab.sdk.internal.run": "otel_rl.frameworks.capture:patch_swanlab"},
    ),
    "tensorboard": Framework(
        distribution="tensorboard",
        tested=">=2.16,<3",
        kind="tracker",
        hooks={
            "torch.utils.tensorboard.writer": "otel_rl.frameworks.capture:patch_summary_writer",
            "tensorboardX.writer": "otel_rl.frameworks.capture:patch_summary_writer",
            "skrl.utils.tensorboard": "otel_rl.frameworks.capture:patch_skrl",
        },
    ),
    "torch": Framework(
        distribution="torch",
        tested=">=2.4,<3",
        kind="library",
        hooks={
            "torch.autograd": "otel_rl.frameworks.torch:patch_autograd",
            "torch.optim.optimizer": "otel_rl.frameworks.torch:patch_optimizer",
            "torch.utils.data.dataloader": "otel_rl.frameworks.torch:patch_data_loader",
        },
    ),
    "trackio": Framework(
        distribution="trackio",
        tested=">=0.43,<1",
        kind="tracker",
        hooks={"trackio.run": "otel_rl.frameworks.capture:patch_trackio"},
    ),
    "transformers": Framework(
        distribution="transformers",
        tested=">=5,<6",
        kind="framework",
        hooks={"transformers.trainer": "otel_rl.frameworks.trl:patch_trainer"},
    ),
    "trinity": Framework(
        modules=("trinity",),
        built_on="verl",
        distribution="trinity-rft",
        tested=">=0.5.1,<0.7",
        kind="framework",
        hooks={
            "trinity.utils.monitor": "otel_rl.frameworks.trinity:patch_monitors",
            "trinity.utils.timer": "otel_rl.frameworks.trinity:patch_timer",
            "trinity.trainer.trainer": "otel_rl.frameworks.trinity:patch_trainer",
        },
    ),
    "trl": Framework(
        modules=("trl",),
        distribution="trl",
        tested=">=1.0,<2",
        kind="framework",
        hooks={"trl.extras.profiling": "otel_rl.frameworks.trl:patch_profiling"},
    ),
    "tunix": Framework(
        modules=("tunix",),
        distribution="google-tunix",
        tested=">=0.1.7,<0.2",
        kind="framework",
        hooks={
            "tunix.sft.peft_trainer": "otel_rl.frameworks.tunix:patch",
            "tunix.rl.rl_cluster": "otel_rl.frameworks.tunix:patch_cluster",
            "tunix.rl.rl_learner": "otel_rl.frameworks.tunix:patch_rewards",
            "tunix.rl.grpo.grpo_learner": "otel_rl.frameworks.tunix:patch_learner",
            "tunix.rl.ppo.ppo_learner": "otel_rl.frameworks.tunix:patch_learner",
        },
    ),
    "verl": Framework(
        modules=("verl",),
        distribution="verl",
        tested=">=0.9,<0.10",
        kind="framework",
        hooks={
            "verl.utils.tracking": "otel_rl.frameworks.verl:patch_tracking",
            "verl.utils.profiler.performance": "otel_rl.frameworks.verl:patch_timers",
            "verl.utils.profiler.nvtx_profile": "otel_rl.frameworks.verl:patch_timers",
            "verl.utils.profiler.mstx_profile": "otel_rl.frameworks.verl:patch_timers",
            "verl.trainer.ppo.ray_trainer": "otel_rl.frameworks.verl:patch_advantages",
            "verl.trainer.ppo.v1.trainer_base": "otel_rl.frameworks.verl:patch_dumps",
        },
    ),
    "wandb": Framework(
        distribution="wandb",
        tested=">=0.19,<1",
        kind="tracker",
        hooks={
            "wandb.sdk.wandb_run": "otel_rl.frameworks.wandb_runs:patch_wandb",
            "wandb.sdk.interface.interface": "otel_rl.frameworks.wandb_runs:patch_wandb_interface",
            "wandb.sdk.lib.noop_run": "otel_rl.frameworks.wandb_runs:patch_wandb_disabled",
            "wandb.integration.tensorboard.monkeypatch": "otel_rl.frameworks.wandb_runs:patch_wandb_tensorboard",
        },
    ),
}

"""rLLM: `UnifiedTrainer.fit` on a CPU, without a line of otel-rl: `otel-rl run -- python rllm_fit.py`.

The backend, which generates and trains, is a toy. The loop, the workflow engine, groups, advantages, metrics, timers
and `Tracking` are rLLM's.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import rllm.trainer
from omegaconf import OmegaConf
from rllm.data import Dataset
from rllm.trainer.algorithms import simple_timer
from rllm.trainer.algorithms.advantage import collect_reward_and_advantage_from_trajectory_groups
from rllm.trainer.backend_protocol import BackendProtocol
from rllm.trainer.unified_trainer import UnifiedTrainer
from rllm.types import Episode, Step, Trajectory
from rllm.workflows.workflow import TerminationReason, Workflow


class Sums(Workflow):
    """Solves every second task."""

    async def run(self, task, uid, **kwargs):
        await asyncio.sleep(0.01)
        solved = (len(task["question"]) + int(uid[-1])) % 2 == 0
        step = Step(prompt_ids=[1, 2], response_ids=[3, 4, 5], logprobs=[-0.5] * 3)
        trajectory = Trajectory(name="solver", steps=[step], reward=float(solved))
        return Episode(
            trajectories=[trajectory],
            is_correct=solved,
            termination_reason=TerminationReason.ENV_DONE,
            metrics={"num_turns": 1.0},
            metadata={"data_source": "sums"},
        )


class Toy(BackendProtocol):
    name = "toy"

    def init_rollout_engine(self, **kwargs):
        return SimpleNamespace()

    def validate_config(self):
        pass

    def shutdown(self):
        pass

    async def generate_episodes(self, batch, agent_workflow_engine, is_validation=False, **kwargs):
        tasks = [task for task in batch for _ in range(1 if is_validation else 2)]
        names = [task["question"].replace(" ", "") for task in tasks]
        return await agent_workflow_engine.execute_tasks(tasks, names, is_validation=is_validation)

    def transform_to_backend_batch(self, trainer_state, **kwargs):
        return []

    async def process_backend_batch(self, trainer_state, **kwargs):
        with simple_timer("forward_backward", trainer_state.timing_dict):
            await asyncio.sleep(0.01)

    async def compute_advantages(self, trainer_state, algorithm_config, **kwargs):
        with simple_timer("adv", trainer_state.timing_dict):
            groups = trainer_state.trajectory_groups
            metrics = collect_reward_and_advantage_from_trajectory_groups(groups, algorithm_config)
            trainer_state.metrics.update(metrics)

    async def update_policy(self, trainer_state, **kwargs):
        with simple_timer("optim_step", trainer_state.timing_dict):
            trainer_state.metrics["train/entropy"] = trainer_state.global_step / 7

    async def on_batch_end(self, trainer_state):
        trainer_state.metrics |= {f"time/{name}": seconds for name, seconds in trainer_state.timing_dict.items()}
        trainer_state.metrics |= {"progress/batch": trainer_state.global_step, "progress/lr": 1e-6}

    async def on_validation_start(self, trainer_state):
        return True


place = Path(rllm.trainer.__file__).with_name("config") / "rllm" / "base.yaml"
config = OmegaConf.merge(
    OmegaConf.create({"rllm": OmegaConf.load(place)}),
    {
        "rllm": {
            "data": {"train_batch_size": 2, "max_response_length": 8},
            "workflow": {"n_parallel_tasks": 4},
            "rollout": {"n": 2},
            "trainer": {
                "total_epochs": 2,
                "test_freq": 2,
                "val_before_train": True,
                "logger": ["tensorboard"],
                "project_name": "p",
                "experiment_name": "grpo",
            },
        }
    },
)
tasks = [{"question": f"{n} + {n * n} = ?"} for n in range(4, 8)]
trainer = UnifiedTrainer(Toy, config, Sums, Dataset(tasks), Dataset(tasks[:2]))
trainer.fit()
trainer.shutdown()

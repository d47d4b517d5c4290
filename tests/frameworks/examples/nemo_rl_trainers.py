"""NeMo-RL's trainers, real, with the mocks of its own tests in place of models and engines.

`PYTHONPATH=RL otel-rl run -- python nemo_rl_trainers.py` runs each with NeMo-RL's `Logger` and `Timer`, which the
launcher records. Then each of their modules executes `snippet.py`, which replaces `Logger` and `Timer`, and they run
again. `logged.jsonl` has all calls of `log_metrics`.
"""

import asyncio
import json
import sys
import typing
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from unittest.mock import AsyncMock, patch

import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict  # NeMo-RL needs Python 3.13; pydantic needs this before 3.12

import ray
import torch
from nemo_rl.algorithms import grpo, grpo_sync, single_controller
from nemo_rl.data_plane import KVBatchMeta
from nemo_rl.utils import memory_tracker
from tests.unit.algorithms import test_grpo as mocks
from tests.unit.single_controller import test_single_controller as controllers

STEPS = 3
VALIDATION = ({"accuracy": 0.25, "avg_length": 7.5}, {"total_validation_time": 0.5})
ROLLOUT = {"mean_gen_tokens_per_sample": 10.0, "max_gen_tokens": 20, "histogram/gen_tokens_length": [[3, 4], [5, 6]]}
TIMELINE = {"inflight_batch_sizes": {0: [1, 2, 3], 1: [2]}, "num_pending_samples": {0: [3, 2, 0], 1: [1]}}


class Kept:
    """Writes down what a trainer logs, before anything else sees it."""

    def __init__(self, cfg):
        Path(cfg["log_dir"]).mkdir(parents=True)
        self.logged = Path(cfg["log_dir"], "logged.jsonl")
        super().__init__(cfg)

    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        call = {"step": step, "prefix": prefix, "metrics": metrics}
        with self.logged.open("a") as file:
            print(json.dumps(call, default=lambda value: value.tolist()), file=file)
        super().log_metrics(metrics, step, prefix, step_metric, step_finished)


def config(whose, name):
    switches = dict.fromkeys(("wandb_enabled", "swanlab_enabled", "mlflow_enabled", "monitor_gpus"), False)
    wandb = {"project": "p", "name": name}
    return {**switches, "log_dir": f"{whose}/{name}", "tensorboard_enabled": True, "tensorboard": {}, "wandb": wandb}


def components(logger):
    """Return the mocks of NeMo-RL's own tests, whose policy trains to other numbers in each step."""
    found = mocks.mock_grpo_components.__wrapped__() | {"logger": logger}
    constant, steps = found["policy"].train.return_value, iter(range(STEPS))

    def train(*_args, **_kwargs):
        sleep(0.2)
        n = next(steps)
        of_batch = {name: [value + n / 7 for value in values] for name, values in constant["all_mb_metrics"].items()}
        return {"loss": torch.tensor(0.5 + n / 7), "grad_norm": torch.tensor(1.0 + n), "all_mb_metrics": of_batch}

    found["policy"].train.side_effect = found["policy"].train_from_meta.side_effect = train
    chosen = found["master_config"]
    chosen.grpo.max_num_steps = STEPS
    chosen.grpo.val_period = 2
    chosen.policy["generation"]["vllm_cfg"] |= {"enable_vllm_metrics_logger": True, "vllm_metrics_logger_interval": 0.5}
    found["policy"].prepare_for_training.side_effect = lambda *_: sleep(0.2)
    found["policy"].prepare_for_lp_inference.side_effect = lambda *_: sleep(0.2)
    return found


def grpo_trainer(trainer, logger):
    """Run `grpo_train`, `grpo_train_sync` or `async_grpo_train`."""
    found = components(logger)
    batch = next(iter(found["train_dataloader"]))
    generation = mocks._mock_policy_generation()
    generation.get_logger_metrics.return_value = TIMELINE
    is_sync = trainer is grpo_sync.grpo_train_sync
    with ExitStack() as stack:
        if trainer is grpo.async_grpo_train:
            found["master_config"].policy["generation"]["colocated"]["enabled"] = False
            stack.enter_context(mocks.mock_async_grpo_infrastructure(batch, ROLLOUT))
        elif is_sync:
            found["master_config"].data_plane = {"enabled": True}
            stack.enter_context(mocks.mock_sync_grpo_infrastructure(found["policy"]))
        else:
            masked = mocks._mock_seq_logprob_error_result()
            for name, value in (
                ("run_multi_turn_rollout", (batch, dict(ROLLOUT))),
                ("run_async_multi_turn_rollout", (batch, dict(ROLLOUT))),
                ("compute_and_apply_seq_logprob_error_masking", masked),
            ):
                stack.enter_context(patch(f"nemo_rl.algorithms.grpo.{name}", return_value=value))
        stack.enter_context(mocks._patched_logprob_phase(found["policy"]))
        validate = "grpo_sync.validate_sync" if is_sync else "grpo.validate"
        stack.enter_context(patch(f"nemo_rl.algorithms.{validate}", return_value=VALIDATION))
        arguments = [found[name] for name in ("policy", "train_dataloader", "val_dataloader", "tokenizer", "loss_fn")]
        arguments[1:1] = [generation]
        arguments += [found[name] for name in ("task_to_env", "val_task_to_env", "logger", "checkpointer")]
        trainer(*arguments, grpo._initial_grpo_save_state(), found["master_config"])


def single_controller_trainer(logger):
    """Run the train pump of the single controller until its data ends."""
    meta = KVBatchMeta(
        partition_id="rollout_data",
        task_name="train",
        sample_ids=["one", "two"],
        fields=[],
        sequence_lengths=[3, 4],
        tags=[{"weight_version": 0}] * 2,
    )
    controller = controllers._train_pump_controller(sampler=controllers._ChunkedSampler(meta, chunks=2 * STEPS))
    controller._master_config.grpo.max_num_steps = STEPS + 1
    controller._timer = single_controller.Timer()
    controller._logger = logger
    controller._sync_weights = AsyncMock(return_value=1)
    losses = iter(range(STEPS))
    controller._trainer.finish_train_step = lambda: {"loss": torch.tensor(next(losses) / 7), "all_mb_metrics": {}}
    controller._trainer.train_microbatches_from_meta = lambda meta: sleep(0.2)
    with patch.object(ray, "cluster_resources", dict):
        asyncio.run(controller._train_pump())


def main():
    memory_tracker.memory_summary = lambda **_: "no Ray here"
    snippet = compile(Path("snippet.py").read_text(), "snippet.py", "exec")
    for whose in ("theirs", "ours"):
        for module in (grpo, grpo_sync, single_controller) if whose == "ours" else ():
            exec(snippet, vars(module))
        logger_class = type("Logger", (Kept, grpo.Logger), {})
        for trainer in (grpo.grpo_train, grpo_sync.grpo_train_sync, grpo.async_grpo_train, None):
            name = "single_controller" if trainer is None else trainer.__name__
            logger = logger_class(config(whose, name))
            single_controller_trainer(logger) if trainer is None else grpo_trainer(trainer, logger)
            logger.finish()


if __name__ == "__main__":
    main()

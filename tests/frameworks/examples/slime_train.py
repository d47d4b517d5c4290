"""slime: its own loop, without a line of otel-rl: `otel-rl run -- python slime_train.py`.

The engines, SGLang and Megatron's model, are toys. The loop of `train.py`, its Ray actors, trackers, timers and metrics
are slime's.
"""

import random
import sys
from argparse import Namespace
from types import ModuleType

import numpy as np
import ray
import torch
from slime.observability import logging_utils, rollout_metrics, train_metric_utils
from slime.observability.timer import Timer, inverse_timer, timer, with_defer
from slime.ray import train_actor
from slime.rollout.base_types import RolloutFnTrainOutput, call_rollout_fn
from slime.utils.types import Sample


def generate(args, rollout_id, source, evaluation=False):
    draw = random.Random(rollout_id)
    lengths = [draw.randint(1, args.rollout_max_response_len) for _ in range(4)]
    samples = [
        Sample(group_index=n // 2, index=n, rollout_id=n, response="a" * length, response_length=length, reward=n % 2)
        for n, length in enumerate(lengths)
    ]
    if evaluation:
        return {"gsm8k": {"rewards": [sample.reward for sample in samples], "samples": samples}}
    return RolloutFnTrainOutput([samples])


@ray.remote
class RolloutManager:
    def __init__(self, args, pg):
        self.args = args
        logging_utils.init_tracking(args, primary=False)

    def generate(self, rollout_id):
        output = call_rollout_fn(generate, self.args, rollout_id, None, evaluation=False)
        rollout_metrics.log_rollout_data(rollout_id, self.args, output.samples[0], output.metrics, 0.5)
        return [sample.response_length for sample in output.samples[0]]

    def eval(self, rollout_id):
        output = call_rollout_fn(generate, self.args, rollout_id, None, evaluation=True)
        rollout_metrics.log_eval_rollout_data(rollout_id, self.args, output.data, output.metrics)

    def set_train_parallel_config(self, config):
        self.config = config

    def dispose(self):
        logging_utils.finish_tracking(self.args)


class CPU:
    """A device without memory."""

    def process_group_backend(self, backend):
        return backend

    def __getattr__(self, name):
        return lambda *_: 0


class MegatronTrainRayActor(train_actor.TrainRayActor):
    def __init__(self, *given):
        train_actor.accelerator = CPU()
        super().__init__(*given)

    @with_defer(lambda: Timer().start("train_wait"))
    def init(self, args, role, with_ref=False, with_opd_teacher=False):
        super().init(args, role, with_ref, with_opd_teacher)
        from megatron.core import mpu

        mpu.initialize_model_parallel()
        if args.rank == 0:
            logging_utils.init_tracking(args, primary=False, role=role)
        self.train_parallel_config = {}
        return 0

    def train(self, rollout_id, lengths, external_data=None):
        with timer("data_preprocess"):
            Timer().seq_lens = lengths
            log_probs = [torch.full((length,), -0.5) for length in lengths]
        with inverse_timer("train_wait"), timer("train"):
            with timer("log_probs"):
                data = {"log_probs": log_probs, "rewards": [0.5] * len(lengths), "response_lengths": lengths}
            reduced = {key: (float(sum(map(torch.sum, map(torch.as_tensor, of)))), len(of)) for key, of in data.items()}
            train_metric_utils.gather_log_data("rollout", self.args, rollout_id, reduced)
            with timer("actor_train"):
                for step in range(self.args.num_steps_per_rollout):
                    number = rollout_id * self.args.num_steps_per_rollout + step
                    values = {"train/loss": number / 7, "train/grad_norm": np.float32(0.5), "train/step": number}
                    if self.args.rank == 0:
                        logging_utils.log(self.args, values, step_key="train/step")
        train_metric_utils.log_perf_data(rollout_id, self.args)

    @timer
    def update_weights(self):
        pass

    @timer
    def save_model(self, rollout_id, force_sync=False):
        pass

    def clear_memory(self):
        pass

    def sleep(self, tags):
        pass

    def wake_up(self, tags):
        pass

    def _get_parallel_config(self):
        pass


def replace(name, **content):
    """Put toys into the place of a module of slime that imports an engine."""
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(content)


replace("slime.ray.rollout", RolloutManager=RolloutManager)
replace("slime.backends.megatron_utils.actor", MegatronTrainRayActor=MegatronTrainRayActor)
replace("slime.utils.arguments", parse_args=None)

import train  # of slime's checkout; it imports what was replaced

off = ("debug_train_only", "debug_rollout_only", "rollout_external", "release_train", "offload_rollout")
off += ("offload_train", "use_critic", "use_opd", "use_kl_loss", "use_routing_replay", "check_weight_update_equal")
off += ("rollout_global_dataset", "load_debug_rollout_data", "log_passrate", "wandb_always_use_train_step", "ci_test")
off += ("wandb_random_suffix", "skip_eval_before_train")
empty = ("wandb_key", "wandb_host", "wandb_team", "tb_project_name", "tb_experiment_name", "megatron_config_path")
empty += ("custom_eval_rollout_log_function_path", "custom_rollout_log_function_path", "log_reward_category")
empty += ("reward_key", "num_experts", "q_lora_rank", "kv_lora_rank", "moe_layer_freq", "start_rollout_id")
arguments = dict.fromkeys(off, False) | dict.fromkeys(empty)
arguments |= {"wandb_project": "p", "wandb_group": "grpo", "wandb_mode": "offline", "wandb_dir": "own"}
arguments |= {"use_wandb": True, "use_tensorboard": True, "colocate": True}
arguments |= {"actor_num_nodes": 1, "actor_num_gpus_per_node": 2, "num_gpus_per_node": 2, "rollout_num_gpus": 1}
arguments |= {"num_rollout": 4, "num_steps_per_rollout": 2, "save_interval": 2, "eval_interval": 2}
arguments |= {"rollout_max_response_len": 9, "n_samples_per_eval_prompt": 4, "advantage_estimator": "grpo"}
arguments |= {"train_env_vars": {}, "kl_coef": 0, "train_backend": "megatron", "distributed_backend": "gloo"}
arguments |= {"distributed_timeout_minutes": 5, "update_weight_mode": "delta", "update_weight_transport": "nccl"}
arguments |= {"hidden_size": 8, "num_attention_heads": 2, "num_query_groups": 2, "kv_channels": 4, "vocab_size": 9}
arguments |= {"ffn_hidden_size": 8, "num_layers": 1}
ray.init(num_cpus=3, num_gpus=2, include_dashboard=False, logging_level="error")
train.train(Namespace(**arguments))

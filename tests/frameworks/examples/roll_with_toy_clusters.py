"""ROLL's own RLVR loop on a CPU: its clusters and schedulers answer with random batches, all the rest is ROLL's code.

`python roll_with_toy_clusters.py TRACKER [KEYWORDS]` trains for three steps, with the keywords of the tracker as JSON.
ROLL's repository is on the path. The values that the pipeline logs go to `logged.jsonl` as well, and tensors that it
trains on to `batches.jsonl`; ROLL writes its own dump of rollouts to `own`. If there is a file `snippet.py`, ROLL's
module executes it, which replaces its tracker, and the manager of states is otel-rl's.
"""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace as Plain
from typing import Any

import numpy as np
import ray
import torch
from roll.configs.base_config import TrainInferCorrectionConfig
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline import base_pipeline
from roll.pipeline.rlvr.rlvr_pipeline import RLVRPipeline
from roll.utils import context_managers
from roll.utils.functionals import RunningMoments
from roll.utils.kl_controller import get_kl_controller
from roll.utils.worker_state import WorkerState

SNIPPET = Path("snippet.py")
if SNIPPET.exists():
    from otel_rl.frameworks.roll import state_offload_manager

    exec(SNIPPET.read_text(), vars(base_pipeline))
else:
    state_offload_manager = context_managers.state_offload_manger
DOMAINS, SAMPLES, PROMPT, RESPONSE = ("math", "code"), 4, 3, 5


def nothing(*_: Any, **__: Any) -> None:
    """Stand for what needs a device."""


platform = context_managers.current_platform  # a device that is empty, since torch.cpu has no memory statistics
for name in ("reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats"):
    setattr(platform, name, nothing)
for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
    setattr(platform, name, lambda *_: 2**30)
platform.device_memory_used = lambda: 2**31
platform.mem_get_info = lambda *_: (2**31, 2**32)
platform.random = Plain(get_rng_state_all=list)


def answers(call: Any) -> Any:
    """Return a remote method that answers at once."""
    return Plain(remote=lambda *args, **kwargs: ray.put(call(*args, **kwargs)))


def batch_of(domain: str, step: int) -> DataProto:
    """Return random completions of two prompts, half of them correct."""
    draw = torch.Generator().manual_seed(step * 10 + len(domain))
    rows, width = 2 * SAMPLES, PROMPT + RESPONSE
    mask = torch.ones(rows, width, dtype=torch.long)
    mask[0, -2:] = 0
    response = mask.clone()
    response[:, :PROMPT] = 0
    scores = torch.tensor([1.0, 0.0] * SAMPLES)
    prompts = torch.randint(5, 90, (2, PROMPT), generator=draw).repeat_interleave(SAMPLES, 0)
    tokens = torch.cat([prompts, torch.randint(5, 90, (rows, RESPONSE), generator=draw)], 1) * mask
    tensors = {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": torch.arange(width).repeat(rows, 1),
        "prompts": prompts,
        "responses": tokens[:, PROMPT:],
        "prompt_mask": mask - response,
        "response_mask": response,
        "scores": scores,
        "response_level_rewards": scores + torch.rand(rows, generator=draw) / 10,
        "infer_logprobs": -torch.rand(rows, width - 1, generator=draw),
    }
    names = {"domain": np.array([domain] * rows, dtype=object), "tag": np.array([domain] * rows, dtype=object)}
    metrics = {f"scheduler/{domain}/score/mean": [0.5, 0.25], f"scheduler/{domain}/time/generate/max": [1.0, 2.0]}
    found: DataProto = DataProto.from_dict(tensors, non_tensors=names)
    found.meta_info = {"metrics": metrics, "generation_config": {"num_return_sequences": SAMPLES}}
    return found


def decode(tokens: Any, **_: Any) -> str:
    """Return a letter for each token, none for padding."""
    return "".join(chr(33 + token) for token in tokens if token)


class Cluster:
    """Workers of one role: they time themselves as ROLL's workers do, and answer at random."""

    dp_size = world_size = 1
    offload_nccl = False

    def __init__(self, role: str) -> None:
        self.role = role

    def load_states(self, *_: Any, **__: Any) -> None:
        time.sleep(0.005)

    offload_states = process_weights_after_loading = load_states

    def timed(self, infix: str, metrics: dict[str, Any]) -> dict[str, Any]:
        with state_offload_manager(self, metrics, f"{self.role}/{infix}"):
            time.sleep(0.02)
        return metrics

    def compute_log_probs(self, batch: DataProto, blocking: bool = True) -> Any:
        shape = batch.batch["response_mask"][:, 1:].shape
        found = DataProto.from_dict({"log_probs": -torch.rand(shape), "entropy": torch.rand(shape)})
        found.meta_info = {"metrics": self.timed("compute_log_probs", {})}
        return found if blocking else [ray.put(found)]

    def train_step(self, batch: DataProto, blocking: bool = True) -> list[Any]:
        lists = {name: values.tolist() for name, values in batch.batch.items()}
        with Path("batches.jsonl").open("a") as file:
            print(json.dumps({"step": batch.meta_info["global_step"], **lists}), file=file)
        losses = {"actor/pg_loss@sum": [0.5, -0.25], "actor/ratio_max@max": [1.0, 1.5], "actor/lr": 1e-6}
        return [ray.put(DataProto(meta_info={"metrics": self.timed("train_step", losses)}))]

    def do_checkpoint(self, **_: Any) -> list[Any]:
        return [ray.put(DataProto(meta_info={"metrics": {"time/actor_train/do_checkpoint/total": 0.5}}))]


class Pipeline(RLVRPipeline):  # type: ignore[misc] # ROLL's class
    """ROLL's pipeline without what its constructor starts on GPUs."""

    def __init__(self, tracker: str, keywords: dict[str, Any]) -> None:
        worker = Plain(
            use_dynamic_batching_in_train=False,
            use_dynamic_batching_in_infer=False,
            training_args=Plain(per_device_train_batch_size=2, gradient_accumulation_steps=2),
        )
        options: dict[str, Any] = {
            "actor_train": worker,
            "actor_infer": Plain(generating_args=Plain(num_return_sequences=SAMPLES)),
            "validation": Plain(generating_args=Plain(to_dict=lambda: {"num_return_sequences": SAMPLES})),
            "train_infer_correction": TrainInferCorrectionConfig(),
            "checkpoint_config": {"async_upload": False},
            "adv_estimator": "reinforce",
            "kl_penalty": "kl",
            "loss_agg_mode": "token-mean",
            "output_dir": "out",
            "rollout_dump_dir": str(Path("own").absolute()),
            "max_steps": 3,
            "eval_steps": 2,
            "save_steps": 2,
            "logging_steps": 5,
            "rollout_batch_size": 16,
            "gamma": 1.0,
            "lambd": 0.95,
            "critic_warmup": 0,
            "rpc_timeout": 60,
            "advantage_clip": 2.0,
            "enable_reference": True,
            "enable_old_logprobs_recompute": True,
            "whiten_advantages": True,
            "max_len_mask": True,
            "difficulty_mask": True,
            "reward_clip": 5.0,
            "add_token_level_kl": True,
            "difficulty_low_threshold": 0.1,
            "difficulty_high_threshold": 0.95,
            "error_max_len_clip": False,
        }
        off = ("async_pipeline", "save_logging_board_dir", "whiten_rewards", "norm_mean_type")
        off += ("norm_std_type", "max_ckpt_to_keep", "use_opd", "is_pure_opd", "rpc_timeout_", "reference_configs")
        self.pipeline_config = Plain(**dict.fromkeys(off), **options)
        self.pipeline_config.max_ckpt_to_keep = 0
        self.tracker = base_pipeline.create_tracker(tracker, {"lr": 1e-6, "nested": {"a": 1}}, **keywords)
        self.state, self.running = WorkerState(), {domain: RunningMoments() for domain in DOMAINS}
        self.checkpoint_manager, self.resume_futures = Plain(upload=nothing), []
        self.resource_manager = Plain(num_gpus=1)
        self.kl_ctrl = get_kl_controller(0.1)
        self.use_ref_model, self.rewards, self.reward_model_cluster = False, {}, None
        self.actor_train, self.actor_infer = Cluster("actor_train"), Cluster("actor_infer")
        self.actor_infer.worker_config = Plain(generating_args=Plain(to_dict=lambda: {"num_return_sequences": SAMPLES}))
        self.tokenizer = Plain(decode=decode, batch_decode=lambda rows, **_: list(map(decode, rows)))
        self.domain_batch_size = dict.fromkeys(DOMAINS, 8)
        self.generate_schedulers = {domain: self.scheduler(domain) for domain in DOMAINS}
        self.val_dataset, self.val_generate_scheduler = [0] * 8, self.scheduler("math")
        updated = Plain(model_update=lambda _: self.actor_train.timed("model_update", {}), tgt_cluster=self.actor_infer)
        self.model_update_groups, self.checkpoint_clusters = [updated], [self.actor_train]

    def scheduler(self, domain: str) -> Plain:
        def get_batch(data: Any, global_step: int, batch_size: int) -> DataProto:
            time.sleep(0.03)
            return batch_of(domain, global_step)

        quiet = {name: answers(nothing) for name in ("pause_sampling", "get_scheduler_state", "shutdown")}
        return Plain(get_batch=answers(get_batch), **quiet)


def main() -> None:
    """Train."""
    ray.init(num_cpus=1, include_dashboard=False, logging_level="error")
    torch.manual_seed(0)
    pipeline = Pipeline(sys.argv[1], json.loads((*sys.argv, "{}")[2]))
    log = pipeline.tracker.log

    def logged(values: dict[str, Any], step: int) -> None:
        with Path("logged.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "values": values}) + "\n")
        log(values=values, step=step)

    pipeline.tracker.log = logged
    pipeline.run()
    pipeline.tracker.finish()
    ray.shutdown()


if __name__ == "__main__":
    main()

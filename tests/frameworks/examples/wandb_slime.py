"""slime's own logging to W&B, with the calls of its trainer and of its rollout manager."""

from argparse import Namespace

from slime.observability import logging_utils
from slime.observability.metric_utils import compute_rollout_step

args = Namespace(
    use_wandb=True,
    wandb_mode="offline",
    wandb_project="p",
    wandb_group="g",
    wandb_dir=".",
    wandb_key=None,
    wandb_team=None,
    wandb_random_suffix=False,
    use_tensorboard=False,
    rank=0,
    wandb_always_use_train_step=False,
)
logging_utils.init_tracking(args)
for rollout_id in range(4):
    at = {"rollout/step": compute_rollout_step(args, rollout_id)}
    for name in ("rollout", "perf", "multi_turn", "passrate"):
        logging_utils.log(args, {f"{name}/x": rollout_id + len(name) / 7, **at}, step_key="rollout/step")
    for step_id in range(2):
        values = {"train/loss": rollout_id / 3 + step_id, "train/lr-pg_0": 1e-6, "train/step": rollout_id * 2 + step_id}
        logging_utils.log(args, values, step_key="train/step")
    logging_utils.log(args, {"perf/train_time": rollout_id / 11, **at}, step_key="rollout/step")
    if rollout_id % 2:
        logging_utils.log(args, {"eval/aime": rollout_id / 5, "eval/step": rollout_id}, step_key="eval/step")
logging_utils.finish_tracking(args)

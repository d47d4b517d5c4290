"""OpenRLHF: its trainer's use of its loggers, without a line of otel-rl: `otel-rl run -- python …`."""

from types import SimpleNamespace

from openrlhf.utils.logging_utils import TensorboardLogger

wandb = SimpleNamespace(key=None, project="p", run_name="ppo", org=None, group=None)
args = SimpleNamespace(logger=SimpleNamespace(wandb=wandb, tensorboard_dir="own"), seed=7)
loggers = [TensorboardLogger(args), TensorboardLogger(args)]
for step in range(1, 5):
    status = {"policy_loss": step / 7, "timing/generation": 0.5, "kl": None, "generated_samples": ["text", 0.5]}
    for logger in loggers:
        logger.log_train(step, status)
for logger in loggers:
    logger.log_eval(4, {"gsm8k_pass1": 0.25})
    logger.close()

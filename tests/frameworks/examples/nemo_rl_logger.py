"""NeMo-RL: its logger and timer from us, with its configuration."""

from otel_rl.frameworks.nemo_rl import Logger, Timer

timer = Timer()
logger = Logger({"log_dir": "logs", "wandb": {"project": "p", "name": "grpo"}, "tensorboard_enabled": False})
logger.log_hyperparams({"grpo": {"num_prompts_per_step": 32}})
for step in range(1, 4):
    with timer.time("generation"):
        lengths = [step, step + 1]
    logger.log_metrics({"loss": 1 / step, "length": lengths}, step, prefix="train")
    logger.log_metrics(timer.get_timing_metrics("sum"), step, prefix="timing/train")
    timer.reset()
logger.finish()

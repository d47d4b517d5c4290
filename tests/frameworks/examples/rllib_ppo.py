"""RLlib: PPO on CartPole with a callback. Prints the results of its iterations."""

import json
from numbers import Number

import ray
from ray.rllib.algorithms.ppo import PPOConfig

from otel_rl.frameworks.rllib import OtelRlCallback

ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0)
    .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=2)
    .evaluation(evaluation_interval=2, evaluation_duration=2, evaluation_num_env_runners=0)
    .debugging(seed=3)
    .callbacks(OtelRlCallback)
)


def numbers(values: dict[str, object], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a result, with the names of nested ones joined."""
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, Number) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = float(value)
    return found


algorithm = config.build_algo()
results = [algorithm.train() for _ in range(4)]
algorithm.stop()
print(json.dumps([numbers({name: one for name, one in result.items() if name != "config"}) for result in results]))

"""Stable-Baselines3: the callback records values, steps and phases."""

from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

from otel_rl.frameworks.stable_baselines3 import OtelRlCallback

model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, batch_size=64, seed=3, device="cpu")
model.set_logger(configure("own", ["json"]))
model.learn(640, callback=OtelRlCallback(project="p", id="ppo", quiet=True, hardware=False))

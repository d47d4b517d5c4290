"""Stable-Baselines3: two off-policy algorithms, without a line of otel-rl: `otel-rl run -- python …`."""

from stable_baselines3 import DQN, SAC
from stable_baselines3.common.logger import configure

model = DQN("MlpPolicy", "CartPole-v1", learning_starts=100, seed=3, device="cpu")
model.set_logger(configure("dqn", ["json"]))
model.learn(800)
model.learn(200, reset_num_timesteps=False)

small = {"net_arch": [16]}
model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=200, train_freq=8, seed=3, device="cpu", policy_kwargs=small)
model.set_logger(configure("sac", ["json"]))
model.learn(800, log_interval=1)

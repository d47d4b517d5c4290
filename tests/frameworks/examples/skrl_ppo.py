"""skrl's PPO on CartPole, without a line of otel-rl: `otel-rl run --capture tensorboard -- python skrl_ppo.py`."""

import gymnasium
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import nn


class Policy(CategoricalMixin, Model):
    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = nn.Linear(self.num_observations, self.num_actions)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = nn.Linear(self.num_observations, 1)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


set_seed(7)
env = wrap_env(gymnasium.make("CartPole-v1"))
spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
experiment = {"directory": "own", "experiment_name": "ppo", "write_interval": 64, "checkpoint_interval": 0}
agent = PPO(
    models={"policy": Policy(**spaces), "value": Value(**spaces)},
    memory=RandomMemory(memory_size=64, num_envs=1, device=env.device),
    cfg={"rollouts": 64, "learning_epochs": 2, "mini_batches": 2, "experiment": experiment},
    **spaces,
)
SequentialTrainer(env=env, agents=agent, cfg={"timesteps": 512, "headless": True}).train()

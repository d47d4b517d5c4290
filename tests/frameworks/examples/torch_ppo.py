"""A PPO loop in the style of CleanRL, without a line of otel-rl.

`otel-rl run --instrument torch --capture tensorboard -- python torch_ppo.py`
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

ITERATIONS, EPOCHS, ENVS, TIMESTEPS = 3, 2, 8, 16


def step(state, action):
    """Return the next state of each toy environment, and a reward for pushing it to zero."""
    state = state + 0.3 * (2 * action.float().unsqueeze(1) - 1) + 0.05 * torch.randn_like(state)
    return state, -state.abs().mean(1)


def rollout(actor, critic):
    """Return states, actions, log-probabilities, rewards and values of one rollout."""
    state, found = torch.randn(ENVS, 4), []
    with torch.no_grad():
        for _ in range(TIMESTEPS):
            policy = torch.distributions.Categorical(logits=actor(state))
            action = policy.sample()
            following, reward = step(state, action)
            found.append((state, action, policy.log_prob(action), reward, critic(state).squeeze(1)))
            state = following
    return [torch.cat(columns) for columns in zip(*found, strict=True)]


def train():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
    writer = SummaryWriter("tb")
    global_step = updates = 0
    for _ in range(ITERATIONS):
        states, actions, old, rewards, values = rollout(actor, critic)
        global_step += len(states)
        batches = DataLoader(TensorDataset(states, actions, old, rewards - values, rewards), batch_size=64)
        for _ in range(EPOCHS):
            for state, action, before, advantage, target in batches:
                ratio = (torch.distributions.Categorical(logits=actor(state)).log_prob(action) - before).exp()
                policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                value_loss = (critic(state).squeeze(1) - target).pow(2).mean()
                optimizer.zero_grad()
                (policy_loss + 0.5 * value_loss).backward()
                optimizer.step()
                updates += 1
        writer.add_scalar("charts/episodic_return", rewards.mean().item(), global_step)
        writer.add_scalar("losses/policy_loss", policy_loss.item(), global_step)
        writer.add_scalar("losses/value_loss", value_loss.item(), global_step)
    writer.close()
    print("updates", updates)


if __name__ == "__main__":
    train()

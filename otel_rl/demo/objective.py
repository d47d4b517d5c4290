"""The mathematics of GRPO (arXiv 2402.03300): advantages within a group, and the clipped loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Loss:
    """The loss of one minibatch and what it consists of, averaged over its tokens."""

    total: Any
    kl: Any
    entropy: Any
    clipped: Any


def group_advantages(rewards: Any, group: int) -> Any:
    """How much better each completion is than its group, in standard deviations of the group."""
    grouped = rewards.view(-1, group)
    spread = grouped - grouped.mean(dim=1, keepdim=True)
    return (spread / (grouped.std(dim=1, keepdim=True) + 1e-4)).flatten()


def zero_std_share(rewards: Any, group: int) -> Any:
    """The share of groups whose completions all earned the same, so that they teach nothing."""
    return (rewards.view(-1, group).std(dim=1) < 1e-6).float().mean()


def policy_loss(
    *, log_probs: Any, old: Any, reference: Any, entropy: Any, advantages: Any, mask: Any, clip: float, beta: float
) -> Loss:
    """The clipped policy gradient plus a KL penalty (the k3 estimator) against the reference."""
    ratio = (log_probs - old).exp()
    bounded = ratio.clamp(1 - clip, 1 + clip)
    advantage = advantages[:, None]
    gain = torch.minimum(ratio * advantage, bounded * advantage)
    apart = reference - log_probs
    kl = apart.exp() - apart - 1
    outside = ((ratio < 1 - clip) & (advantage < 0)) | ((ratio > 1 + clip) & (advantage > 0))

    def mean(values: Any) -> Any:
        return (values * mask).sum() / mask.sum()

    return Loss(
        total=mean(beta * kl - gain),
        kl=mean(kl).detach(),
        entropy=mean(entropy).detach(),
        clipped=mean(outside.float()).detach(),
    )

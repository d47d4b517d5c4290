"""Completions: how the policy writes them, and how likely a policy finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from otel_rl.demo.model import empty_cache
from otel_rl.demo.task import COMPLETION_TOKENS, END, PAD, PROMPT_TOKENS, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.demo.model import Policy


@dataclass(frozen=True)
class Completions:
    """Completions with their prompts; one row per completion."""

    tokens: Any  # [rows, PROMPT_TOKENS + COMPLETION_TOKENS]
    mask: Any  # [rows, COMPLETION_TOKENS], 1.0 up to and with the end
    log_probs: Any  # [rows, COMPLETION_TOKENS], by the policy that wrote them

    @property
    def lengths(self) -> Any:
        """How many tokens each completion has."""
        return self.mask.sum(dim=1)

    @property
    def clipped(self) -> Any:
        """1.0 for each completion that ran out of room before it ended."""
        return 1.0 - (self.tokens[:, PROMPT_TOKENS:] == END).any(dim=1).float()

    def texts(self) -> list[str]:
        """The completions as text."""
        return [decode(row) for row in self.tokens[:, PROMPT_TOKENS:].tolist()]

    def rows(self, index: Any) -> Completions:
        """Some of the completions."""
        return Completions(self.tokens[index], self.mask[index], self.log_probs[index])


def generate(policy: Policy, prompts: Sequence[str], generator: Any) -> Completions:
    """One completion per prompt, drawn at temperature 1."""
    tokens = torch.tensor([encode(prompt) for prompt in prompts])
    cache, unread = empty_cache(), tokens
    alive = torch.ones(len(prompts))
    masks, log_probs = [], []
    with torch.no_grad():
        for _ in range(COMPLETION_TOKENS):
            scores = policy(unread, cache)[:, -1].log_softmax(dim=-1)
            drawn = torch.multinomial(scores.exp(), 1, generator=generator)
            unread = torch.where(alive[:, None] > 0, drawn, PAD)
            tokens = torch.cat([tokens, unread], dim=1)
            masks.append(alive)
            log_probs.append(scores.gather(1, unread)[:, 0] * alive)
            alive = alive * (unread[:, 0] != END)
    return Completions(tokens, torch.stack(masks, dim=1), torch.stack(log_probs, dim=1))


def judge(policy: Policy, batch: Completions) -> tuple[Any, Any]:
    """The log-probability of every completion token under a policy, and the entropy of its choice there."""
    scores = policy(batch.tokens[:, :-1])[:, PROMPT_TOKENS - 1 :].log_softmax(dim=-1)
    chosen = scores.gather(2, batch.tokens[:, PROMPT_TOKENS:, None])[:, :, 0]
    return chosen, -(scores.exp() * scores).sum(dim=-1)

"""The policy: a causal transformer of two layers, how it generates completions, and how it scores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation imports it

from otel_rl.demo.task import ALPHABET, COMPLETION_TOKENS, END, PAD, PROMPT_TOKENS, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEADS, LAYERS = 96, 4, 2

Cache = list[tuple[Any, Any] | None]
"""The keys and values that each layer has computed so far, so that generation reads every token once."""


class Block(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A transformer block: attention and a feed-forward network, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Any, past: tuple[Any, Any] | None) -> tuple[Any, tuple[Any, Any]]:
        """Return the activations [rows, length, WIDTH], and the keys and values up to here."""
        rows, length, _ = x.shape
        heads = self.qkv(self.norm_attention(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.feed(self.norm_feed(x)), (key, value)


class Policy(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A language model over `task.ALPHABET`."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(ALPHABET), WIDTH)
        self.positions = nn.Embedding(PROMPT_TOKENS + COMPLETION_TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, tokens: Any, cache: Cache | None = None) -> Any:
        """Return the logits after each token; with a cache, the tokens continue the ones that it has seen."""
        start = cache[0][0].shape[2] if cache and cache[0] else 0
        x = self.tokens(tokens) + self.positions.weight[start : start + tokens.shape[1]]
        for layer, block in enumerate(self.blocks):
            x, seen = block(x, cache[layer] if cache else None)
            if cache:
                cache[layer] = seen
        return self.head(self.norm(x))


@dataclass(frozen=True)
class Completions:
    """Completions with their prompts; one row per completion."""

    tokens: Any  # [rows, PROMPT_TOKENS + COMPLETION_TOKENS]
    mask: Any  # [rows, COMPLETION_TOKENS], 1.0 up to and including the end token
    log_probs: Any  # [rows, COMPLETION_TOKENS], under the policy that generated them

    @property
    def lengths(self) -> Any:
        """The number of tokens of each completion."""
        return self.mask.sum(dim=1)

    @property
    def clipped(self) -> Any:
        """1.0 for each completion that reached the token limit before it ended, else 0.0."""
        return 1.0 - (self.tokens[:, PROMPT_TOKENS:] == END).any(dim=1).float()

    def texts(self) -> list[str]:
        """Return the completions as text."""
        return [decode(row) for row in self.tokens[:, PROMPT_TOKENS:].tolist()]

    def rows(self, index: Any) -> Completions:
        """Return the completions at these row numbers."""
        return Completions(self.tokens[index], self.mask[index], self.log_probs[index])


def generate(policy: Policy, prompts: Sequence[str], generator: Any) -> Completions:
    """Sample one completion per prompt at temperature 1."""
    tokens = torch.tensor([encode(prompt) for prompt in prompts])
    cache: Cache = [None] * LAYERS
    unread = tokens
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
    """Return the log-probability of each completion token, and the entropy in nats at each; both like `batch.mask`."""
    scores = policy(batch.tokens[:, :-1])[:, PROMPT_TOKENS - 1 :].log_softmax(dim=-1)
    chosen = scores.gather(2, batch.tokens[:, PROMPT_TOKENS:, None])[:, :, 0]
    return chosen, -(scores.exp() * scores).sum(dim=-1)

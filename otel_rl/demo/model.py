"""The policy: a causal transformer of two layers, small enough for a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation imports it

from otel_rl.demo.task import ALPHABET, COMPLETION_TOKENS, PROMPT_TOKENS

WIDTH, HEADS, LAYERS = 96, 4, 2

Cache = list[tuple[Any, Any] | None]
"""The keys and values of each layer so far; a generating model reads every token once."""


class Block(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Attention, then a feed-forward layer, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Any, past: tuple[Any, Any] | None) -> tuple[Any, tuple[Any, Any]]:
        """The new activations, and the keys and values up to here."""
        rows, length, _ = x.shape
        heads = self.qkv(self.norm_attention(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.feed(self.norm_feed(x)), (key, value)


class Policy(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Tokens in, the logits of the next token out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(ALPHABET), WIDTH)
        self.positions = nn.Embedding(PROMPT_TOKENS + COMPLETION_TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, tokens: Any, cache: Cache | None = None) -> Any:
        """The logits after every given token; with a cache, the tokens continue those seen before."""
        start = cache[0][0].shape[2] if cache and cache[0] else 0
        x = self.tokens(tokens) + self.positions.weight[start : start + tokens.shape[1]]
        for layer, block in enumerate(self.blocks):
            x, seen = block(x, cache[layer] if cache else None)
            if cache:
                cache[layer] = seen
        return self.head(self.norm(x))


def empty_cache() -> Cache:
    """A cache of a model that has read nothing yet (with a cache, give one token at a time after the prompt)."""
    return [None] * LAYERS

"""The warm-up: a little imitation of a careless teacher, so that reinforcement learning has something to reinforce."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation imports it

from otel_rl.demo.task import COMPLETION_TOKENS, PAD, PROMPT_TOKENS, Problem, encode, sloppy_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.demo.model import Policy
    from otel_rl.demo.options import Options
    from otel_rl.demo.ranks import Ranks


def warm_up(policy: Policy, lessons: Sequence[Problem], options: Options, ranks: Ranks) -> None:
    """Supervised learning on answers that are right one time in three."""
    chance = random.Random(f"warm-up {options.seed} {ranks.rank}")
    rate = options.warmup_learning_rate
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate, weight_decay=0.01)
    for update in range(options.warmup_updates):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (options.warmup_updates - update) / 100)
        batch = chance.choices(lessons, k=options.warmup_batch // ranks.world_size)
        answers = [sloppy_answer(problem, chance).ljust(COMPLETION_TOKENS) for problem in batch]
        tokens = torch.tensor([encode(problem.prompt + answer) for problem, answer in zip(batch, answers, strict=True)])
        targets = tokens[:, PROMPT_TOKENS:]
        logits = policy(tokens[:, :-1])[:, PROMPT_TOKENS - 1 :]
        loss = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        ranks.average_gradients(policy.parameters())
        optimizer.step()

"""TRL: what its trainers have generated, with the tokens that they train on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.rollouts import ScoredRollout, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_TOKENS = ("completion_ids", "completion_mask", "sampling_per_token_logps", "old_per_token_logps")
_REWARDS = "rewards"


def rollouts_of(trainer: Any, batch: Any) -> list[ScoredRollout]:
    """Return the trajectories of this rank that TRL has just generated and scored.

    Texts and rewards are those that TRL keeps for its own table, which has those of all ranks. Tokens are those that it
    trains on: it has just waited for the device, so copies do not wait. ms-swift keeps the table too, but its batches
    are others: its first rank returns all trajectories, without tokens.
    """
    logs, accelerator = trainer._logs, trainer.accelerator
    lists: dict[str, list[Any]] = {}
    count, before, start = len(logs["prompt"]) if accelerator.is_main_process else 0, 0, 0
    if isinstance(batch, dict):
        lists = {name: batch[name].tolist() for name in _OF_TOKENS if name in batch}
        lists["mask"] = (batch["completion_mask"] * batch.get("tool_mask", 1)).tolist()
        count = len(lists["mask"])
        before, start = accelerator.process_index * count, -accelerator.num_processes * count
    held = {name: [*values][start:][before : before + count] for name, values in _columns(logs)}
    weights = dict(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True))
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    piece_of = pieces_of(tokenizer.decode) if lists else {}
    rollouts = []
    for n in range(count):
        length = _length(lists, n, tokenizer.pad_token_id) if lists else 0
        of_tokens = {name: values[n][:length] for name, values in lists.items()}
        rewards = {name: value for name in weights if not math.isnan(value := held[_REWARDS, name][n])}
        rollouts.append(
            ScoredRollout(
                prompt=held["prompt"][n],
                completion=held["completion"][n],
                group=(before + n) // trainer.num_generations,
                tokens=of_tokens.get("completion_ids", ()),
                mask=of_tokens.get("mask", ()),
                logprobs=of_tokens.get("sampling_per_token_logps"),
                trainer_logprobs=of_tokens.get("old_per_token_logps"),
                reward=sum(weights[name] * value for name, value in rewards.items()),
                advantage=held["advantages"][n],
                components=rewards,
                pieces=[piece_of[token] for token in of_tokens.get("completion_ids", ())],
            )
        )
    return rollouts


def _columns(logs: dict[str, Any]) -> Iterator[tuple[object, Any]]:
    yield from ((name, logs[name]) for name in ("prompt", "completion", "advantages"))
    yield from (((_REWARDS, name), values) for name, values in logs[_REWARDS].items())


def _length(lists: dict[str, list[Any]], n: int, padding: int) -> int:
    """Return the number of tokens. A mask without ones is of a text that was cut, which does not end with padding."""
    tokens, attention = lists["completion_ids"][n], lists["completion_mask"][n]
    return sum(attention) or max((at for at, token in enumerate(tokens, 1) if token != padding), default=0)

"""The trajectories of a batch, as trainers hold them when they train on them.

Hooks make a `ScoredRollout` of each line of a framework's batch; `record` gives them to the run. Nothing is read from a
batch unless texts may leave the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from numbers import Real
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec

import otel_rl

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.recorder.trainer.run import Run


class Pieces(dict[int, str]):
    """Texts of the tokens of a tokenizer, each decoded once: a batch has tens of thousands, and few different ones."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, token: int) -> str:
        piece = self[token] = str(self._decode([token]))
        return piece


@lru_cache(1)
def pieces_of(decode: Callable[[list[int]], str]) -> Pieces:
    """Return the texts of the tokens of a tokenizer, with those of earlier batches; `decode` is its method."""
    return Pieces(decode)


class ScoredRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory, and what the trainer made of it. Lists have one value per token of the completion."""

    prompt: object  # a text, or messages
    completion: object  # a text, or messages
    group: object = None  # what the completions of one prompt share; `None` if it is unknown
    tokens: Sequence[int] = ()  # ids of the tokens
    mask: Sequence[object] = ()  # whether each token is trained on
    logprobs: Sequence[float] | None = None  # log-probabilities of the inference engine; `None` if they are unknown
    trainer_logprobs: Sequence[float] | None = None
    """Log-probabilities of the trainer, before the update; `None` if they are unknown."""
    reward: float | None = None  # the total reward; `None` if it is unknown
    advantage: float | None = None  # the advantage, the mean over tokens that are trained on; `None` if it is unknown
    components: Mapping[str, float] = {}  # the parts of the reward, and other numbers
    pieces: Sequence[str] = ()  # text of each token; empty if it is unknown


class RolloutBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors in host memory with a line for each trajectory, padded on any side.

    Tensors with fewer columns than `tokens` have those of the last tokens.
    """

    tokens: Any  # prompts and completions
    attention: Any  # which of them are not padding
    since: Any  # a completion begins with the first one in its line
    written: Any  # which tokens the policy wrote; others of a completion are what tools answered
    mask: Any  # which tokens are trained on
    advantages: Any  # an advantage of each token
    logprobs: Any = None  # log-probabilities of the inference engine; `None` if they are unknown
    trainer_logprobs: Any = None  # log-probabilities of the trainer; `None` if they are unknown
    rewards: Sequence[float]  # the total reward of each trajectory
    groups: Sequence[object]  # what the trajectories of one prompt share
    components: Mapping[str, Sequence[Any]] = {}  # other numbers of each trajectory, by name

    def rollouts(self, tokenizer: Any, count: int | None = None) -> list[ScoredRollout]:
        """Return the trajectories, the first `count` of them, with texts without special tokens."""
        decode, piece_of = partial(tokenizer.decode, skip_special_tokens=True), pieces_of(tokenizer.decode)
        return [self._rollout(n, kept, decode, piece_of) for n, kept in enumerate(self.attention[:count].bool())]

    def _rollout(self, n: int, kept: Any, decode: Callable[[Sequence[int]], str], piece_of: Pieces) -> ScoredRollout:
        since = _of_line(self.since, n, kept)
        length = len(since) - next((at for at, is_trained in enumerate(since) if is_trained), len(since))

        def of_completion(tensor: Any) -> list[Any]:
            values = _of_line(tensor, n, kept)
            return values[len(values) - length :]

        def if_known(tensor: Any) -> list[float] | None:
            return None if tensor is None else of_completion(tensor)

        tokens, mask = of_completion(self.tokens), of_completion(self.mask)
        return ScoredRollout(
            # `or None`: of an empty completion, `[:-0]` would be empty too, and the prompt lost.
            prompt=decode(_of_line(self.tokens, n, kept)[: -length or None]),
            completion=turns(tokens, of_completion(self.written), decode),
            group=self.groups[n],
            tokens=tokens,
            mask=mask,
            logprobs=if_known(self.logprobs),
            trainer_logprobs=if_known(self.trainer_logprobs),
            reward=self.rewards[n],
            advantage=mean_of(of_completion(self.advantages), mask),
            components={name: values[n] for name, values in self.components.items() if isinstance(values[n], Real)},
            pieces=[piece_of[token] for token in tokens],
        )


def _of_line(tensor: Any, n: int, kept: Any) -> list[Any]:
    return tensor[n][kept[-tensor.shape[1] :]].tolist()  # type: ignore[no-any-return]


def run_with_texts() -> Run | None:
    """Return the current run if texts may leave the process (`init(content=True)`)."""
    run = otel_rl.current()
    return run if run is not None and run._session.settings.content else None


def turns(tokens: Sequence[int], mask: Sequence[object], decode: Callable[[Sequence[int]], str]) -> object:
    """Return a completion as messages: tokens that the policy wrote are the assistant's, those between are a tool's."""
    runs = [(bool(own), [token for token, _ in pairs]) for own, pairs in groupby(zip(tokens, mask, strict=True), _own)]
    if len(runs) < 2:
        return decode(tokens)
    return [{"role": "assistant" if own else "tool", "content": decode(ids)} for own, ids in runs]


def _own(pair: tuple[int, object]) -> bool:
    return bool(pair[1])


def record(run: Run, step: int, rollouts: Sequence[ScoredRollout]) -> None:
    """Record the trajectories of a batch, those of one prompt next to each other."""
    groups: dict[object, list[ScoredRollout]] = {}
    for number, rollout in enumerate(rollouts):
        groups.setdefault(number if rollout.group is None else (rollout.group, str(rollout.prompt)), []).append(rollout)
    of_groups = list(groups.values())
    ordered = [rollout for group in of_groups for rollout in group]
    run.completions(
        [group[0].prompt for group in of_groups],
        [[rollout.completion for rollout in group] for group in of_groups],
        step=step,
        rewards=[rollout.reward for rollout in ordered],
        advantages=[rollout.advantage for rollout in ordered],
        reward_components={
            name: [rollout.components.get(name) for rollout in ordered]
            for name in dict.fromkeys(name for rollout in ordered for name in rollout.components)
        },
        tokens=[rollout.tokens for rollout in ordered],
        masks=[rollout.mask for rollout in ordered],
        logprobs=_if_any([rollout.logprobs for rollout in ordered]),
        trainer_logprobs=_if_any([rollout.trainer_logprobs for rollout in ordered]),
        pieces=[rollout.pieces for rollout in ordered] if any(rollout.pieces for rollout in ordered) else None,
    )


def _if_any(lists: Sequence[Sequence[float] | None]) -> Sequence[Sequence[float]] | None:
    return None if all(values is None for values in lists) else [values or () for values in lists]


def mean_of(values: Sequence[float], mask: Sequence[object]) -> float | None:
    """Return the mean of the values whose mask is true; `None` if there are none."""
    chosen = [value for value, own in zip(values, mask, strict=True) if own]
    return fmean(chosen) if chosen else None

"""The trajectories of a batch, as trainers hold them when they train on them.

Hooks make a `Rollout` of each line of a framework's batch; `record` gives them to the run. Nothing is read from a batch
unless texts may leave the process.
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

    from otel_rl.trainer.run import Run


class Pieces(dict[int, str]):
    """Texts of the tokens of a tokenizer, each decoded once: a batch has tens of thousands, and few different ones."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, token: int) -> str:
        found = self[token] = str(self._decode([token]))
        return found


@lru_cache(1)
def pieces_of(decode: Callable[[list[int]], str]) -> Pieces:
    """Return the texts of the tokens of a tokenizer, with those of earlier batches; `decode` is its method."""
    return Pieces(decode)


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory, and what the trainer made of it. Lists have one value per token of the completion.

    Attributes:
        prompt: A text, or messages.
        completion: A text, or messages.
        group: What the completions of one prompt share; `None` if it is unknown.
        tokens: Ids of the tokens.
        mask: Whether each token is trained on.
        logprobs: Log-probabilities of the inference engine; `None` if they are unknown.
        trainer_logprobs: Log-probabilities of the trainer, before the update; `None` if they are unknown.
        reward: The total reward; `None` if it is unknown.
        advantage: The advantage, the mean over tokens that are trained on; `None` if it is unknown.
        components: The parts of the reward, and other numbers.
        pieces: Text of each token; empty if it is unknown.
    """

    prompt: object
    completion: object
    group: object = None
    tokens: Sequence[int] = ()
    mask: Sequence[object] = ()
    logprobs: Sequence[float] | None = None
    trainer_logprobs: Sequence[float] | None = None
    reward: float | None = None
    advantage: float | None = None
    components: Mapping[str, float] = {}
    pieces: Sequence[str] = ()


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors in host memory with a line for each trajectory, padded on any side.

    Tensors with fewer columns than `tokens` have those of the last tokens.

    Attributes:
        tokens: Prompts and completions.
        attention: Which of them are not padding.
        since: A completion begins with the first one in its line.
        written: Which tokens the policy wrote; others of a completion are what tools answered.
        mask: Which tokens are trained on.
        advantages: An advantage of each token.
        logprobs: Log-probabilities of the inference engine; `None` if they are unknown.
        trainer_logprobs: Log-probabilities of the trainer; `None` if they are unknown.
        rewards: The total reward of each trajectory.
        groups: What the trajectories of one prompt share.
        components: Other numbers of each trajectory, by name.
    """

    tokens: Any
    attention: Any
    since: Any
    written: Any
    mask: Any
    advantages: Any
    logprobs: Any = None
    trainer_logprobs: Any = None
    rewards: Sequence[float]
    groups: Sequence[object]
    components: Mapping[str, Sequence[Any]] = {}

    def rollouts(self, tokenizer: Any, count: int | None = None) -> list[Rollout]:
        """Return the trajectories, the first `count` of them, with texts without special tokens."""
        decode, piece_of = partial(tokenizer.decode, skip_special_tokens=True), pieces_of(tokenizer.decode)
        return [self._rollout(n, kept, decode, piece_of) for n, kept in enumerate(self.attention[:count].bool())]

    def _rollout(self, n: int, kept: Any, decode: Callable[[Sequence[int]], str], piece_of: Pieces) -> Rollout:
        since = _of_line(self.since, n, kept)
        length = len(since) - next((at for at, one in enumerate(since) if one), len(since))

        def of_completion(tensor: Any) -> list[Any]:
            found = _of_line(tensor, n, kept)
            return found[len(found) - length :]

        def if_known(tensor: Any) -> list[float] | None:
            return None if tensor is None else of_completion(tensor)

        tokens, mask = of_completion(self.tokens), of_completion(self.mask)
        return Rollout(
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


def record(run: Run, step: int, rollouts: Sequence[Rollout]) -> None:
    """Record the trajectories of a batch, those of one prompt next to each other."""
    groups: dict[object, list[Rollout]] = {}
    for number, one in enumerate(rollouts):
        groups.setdefault(number if one.group is None else (one.group, str(one.prompt)), []).append(one)
    of_groups = list(groups.values())
    ordered = [one for group in of_groups for one in group]
    run.completions(
        [group[0].prompt for group in of_groups],
        [[one.completion for one in group] for group in of_groups],
        step=step,
        rewards=[one.reward for one in ordered],
        advantages=[one.advantage for one in ordered],
        reward_components={
            name: [one.components.get(name) for one in ordered]
            for name in dict.fromkeys(name for one in ordered for name in one.components)
        },
        tokens=[one.tokens for one in ordered],
        masks=[one.mask for one in ordered],
        logprobs=_if_any([one.logprobs for one in ordered]),
        trainer_logprobs=_if_any([one.trainer_logprobs for one in ordered]),
        pieces=[one.pieces for one in ordered] if any(one.pieces for one in ordered) else None,
    )


def _if_any(lists: Sequence[Sequence[float] | None]) -> Sequence[Sequence[float]] | None:
    return None if all(one is None for one in lists) else [one or () for one in lists]


def mean_of(values: Sequence[float], mask: Sequence[object]) -> float | None:
    """Return the mean of the values whose mask is true; `None` if there are none."""
    chosen = [value for value, own in zip(values, mask, strict=True) if own]
    return fmean(chosen) if chosen else None

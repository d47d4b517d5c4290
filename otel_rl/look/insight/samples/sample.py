"""The facts of samples: what was asked, what the policy wrote, and what it got for that."""

from __future__ import annotations

import math
from statistics import fmean
from typing import NamedTuple

import msgspec


class SampleTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a trajectory."""

    author: str  # who wrote it: system, user, assistant, tool, or another role that was recorded
    text: str  # what it says, as far as it was recorded
    name: str = ""  # name of the tool, of a tool's message
    cut: int = 0  # characters of the text that were not recorded
    calls: tuple[str, ...] = ()  # tools that it calls, each as `name(arguments)`
    policy_version: int = -1  # version of the policy that wrote it; -1 if it is unknown
    tokens: tuple[int, ...] = ()
    """Ids of its tokens; empty if they are unknown or were not asked for, as the following lists."""
    logprobs: tuple[float, ...] = ()  # log-probability of each token in the engine that generated it
    trainer_logprobs: tuple[float, ...] = ()  # the same in the trainer
    mask: tuple[bool, ...] = ()  # whether each token was trained on
    pieces: tuple[str, ...] = ()  # text of each token


class TextSample(msgspec.Struct, frozen=True, kw_only=True):
    """A completion, or a trajectory of several turns."""

    step: int  # the step that recorded it, or trained on it
    table: str  # the name of its table; `messages` for a trajectory
    number: int  # its place in the table of the step, from 0
    group: int  # the number of its prompt in the step; -1 if it is unknown
    prompt: str  # what was asked, of a trajectory all before the policy's first turn; empty if that was not recorded
    completion: str  # what the policy wrote, of a trajectory in all its turns
    reward: float | None  # the total reward, or the only one; `None` if it is unknown
    components: dict[str, float]  # other numbers that were recorded with it, such as the parts of the reward
    turns: tuple[SampleTurn, ...] = ()  # the messages of a trajectory in their order; none for a completion of a table
    trace_id: str = ""  # the trace of the trajectory; empty if it has none
    span_id: str = ""  # the root span of the trajectory; empty if it has none
    advantage: float | None = None  # its advantage; `None` if it is unknown
    loss: float | None = None  # its loss; `None` if it is unknown
    prompt_id: str = ""  # id of the prompt; empty if it is unknown
    group_id: str = ""  # id of the group; empty if it is unknown
    row: str = ""  # row of the dataset; empty if it is unknown
    policy_version: int = -1  # oldest version of the policy that wrote a part of it; -1 if it is unknown
    trained_version: int = -1  # version of the policy that was trained with it; -1 if it is unknown
    outcome: str = ""  # `trained`, or the reason why the trajectory was dropped; empty if no step took it
    gap: float | None = None
    """Mean difference, without its sign, of the log-probabilities of engine and trainer, over the tokens that were
    trained on; `None` if it is unknown or was not asked for.
    """
    seconds: dict[str, float] = {}
    """Seconds of its parts, such as `model` and `tool pytest`, if they have spans and were asked for."""

    @property
    def staleness(self) -> int | None:
        """Versions between the policy that wrote it and the one that was trained with it; `None` if it is unknown."""
        is_known = self.policy_version >= 0 and self.trained_version >= 0
        return self.trained_version - self.policy_version if is_known else None

    @property
    def conversation(self) -> tuple[SampleTurn, ...]:
        """Its turns; of a completion of a table, what was asked and the answer."""
        if self.turns:
            return self.turns
        return SampleTurn(author="prompt", text=self.prompt), SampleTurn(author="completion", text=self.completion)


class Phrase(msgspec.Struct, frozen=True, kw_only=True):
    """Words that became frequent and earn a reward."""

    text: str  # the words, in lower case
    since: int  # the first step in which at least half as many completions have them as at the end
    share: float  # fraction of the completions of the last third of the steps that have them
    share_before: float  # the same of the first third
    reward: float  # mean reward of completions with them, in steps in which others lack them
    reward_without: float  # mean reward of those others
    component: str = ""  # the recorded number that differs the most between both; empty if none does


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A sample, and one of the same prompt from another step; `None` if that step has none."""

    sample: TextSample
    other: TextSample | None = None


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of a run that are worth reading."""

    steps: tuple[int, int]  # the first and the last step with samples
    tables: tuple[str, ...]  # names of the tables that have them
    searched: int  # number of samples, evenly spaced over the run, that were searched for phrases and faults
    found: int  # number of samples that were asked for
    phrases: tuple[Phrase, ...]  # phrases that earn a reward, the most frequent first
    sentences: tuple[str, ...]  # what it says of them
    other_step: int | None  # the step of the samples to compare with, if asked for
    samples: tuple[Pair, ...]
    """The first of the samples that were asked for, each with the one to compare it with, if asked for."""


class Gap(NamedTuple):
    """How far log-probabilities differ."""

    mean: float  # mean difference without its sign, over the tokens that were trained on
    place: int  # the token that differs the most, counted from 0
    engine: float  # its probability in the engine
    trainer: float  # its probability in the trainer


def gap_of(turn: SampleTurn) -> Gap | None:
    """Return the gap of a turn; `None` if the engine's or the trainer's log-probabilities are unknown."""
    differences = {
        place: abs(engine - trainer)
        for place, (engine, trainer) in enumerate(zip(turn.logprobs, turn.trainer_logprobs, strict=False))
        if math.isfinite(engine - trainer) and (place >= len(turn.mask) or turn.mask[place])
    }
    if not differences:
        return None
    place = max(differences, key=lambda at: differences[at])
    engine, trainer = (math.exp(min(0.0, logprobs[place])) for logprobs in (turn.logprobs, turn.trainer_logprobs))
    return Gap(fmean(differences.values()), place, engine, trainer)

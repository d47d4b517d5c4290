"""The facts of samples: what was asked, what the policy wrote, and what it got for that."""

from __future__ import annotations

import msgspec


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A completion.

    Attributes:
        step: The step that recorded it.
        table: The name of its table.
        number: Its place in the table of the step, from 0.
        group: The number of its prompt in the step; -1 if it is unknown.
        prompt: What was asked; empty if that was not recorded.
        completion: What the policy wrote.
        reward: The total reward, or the only one; `None` if it is unknown.
        components: Other numbers that were recorded with it, such as the parts of the reward.
    """

    step: int
    table: str
    number: int
    group: int
    prompt: str
    completion: str
    reward: float | None
    components: dict[str, float]


class Phrase(msgspec.Struct, frozen=True, kw_only=True):
    """Words that became frequent and earn a reward.

    Attributes:
        text: The words, in lower case.
        since: The first step in which at least half as many completions have them as at the end.
        share: Fraction of the completions of the last third of the steps that have them.
        share_before: The same of the first third.
        reward: Mean reward of completions with them, in steps in which others lack them.
        reward_without: Mean reward of those others.
        component: The recorded number that differs the most between both; empty if none does.
    """

    text: str
    since: int
    share: float
    share_before: float
    reward: float
    reward_without: float
    component: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A sample, and one of the same prompt from another step; `None` if that step has none."""

    sample: Sample
    other: Sample | None = None


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of a run that are worth reading.

    Attributes:
        steps: The first and the last step with samples.
        tables: Names of the tables that have them.
        total: Number of samples that were recorded.
        found: Number of samples that were asked for.
        phrases: Phrases that earn a reward, the most frequent first.
        sentences: What it says of them.
        other_step: The step of the samples to compare with, if asked for.
        samples: The first of the samples that were asked for, each with the one to compare it with, if asked for.
    """

    steps: tuple[int, int]
    tables: tuple[str, ...]
    total: int
    found: int
    phrases: tuple[Phrase, ...]
    sentences: tuple[str, ...]
    other_step: int | None
    samples: tuple[Pair, ...]

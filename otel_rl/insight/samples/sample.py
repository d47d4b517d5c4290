"""The facts of samples: what was asked, what the policy wrote, and what it got for that."""

from __future__ import annotations

import msgspec


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a trajectory.

    Attributes:
        author: Who wrote it: system, user, assistant, tool, or another role that was recorded.
        text: What it says, as far as it was recorded.
        name: Name of the tool, of a tool's message.
        cut: Characters of the text that were not recorded.
        calls: Tools that it calls, each as `name(arguments)`.
        policy_version: Version of the policy that wrote it; -1 if it is unknown.
        tokens: Ids of its tokens; empty if they are unknown or were not asked for, as the following lists.
        logprobs: Log-probability of each token in the engine that generated it.
        trainer_logprobs: The same in the trainer.
        mask: Whether each token was trained on.
        pieces: Text of each token.
    """

    author: str
    text: str
    name: str = ""
    cut: int = 0
    calls: tuple[str, ...] = ()
    policy_version: int = -1
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    trainer_logprobs: tuple[float, ...] = ()
    mask: tuple[bool, ...] = ()
    pieces: tuple[str, ...] = ()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A completion, or a trajectory of several turns.

    Attributes:
        step: The step that recorded it, or trained on it.
        table: The name of its table; `messages` for a trajectory.
        number: Its place in the table of the step, from 0.
        group: The number of its prompt in the step; -1 if it is unknown.
        prompt: What was asked, of a trajectory all before the policy's first turn; empty if that was not recorded.
        completion: What the policy wrote, of a trajectory in all its turns.
        reward: The total reward, or the only one; `None` if it is unknown.
        components: Other numbers that were recorded with it, such as the parts of the reward.
        turns: The messages of a trajectory in their order; none for a completion of a table.
        trace_id: The trace of the trajectory; empty if it has none.
        span_id: The root span of the trajectory; empty if it has none.
        advantage: Its advantage; `None` if it is unknown.
        loss: Its loss; `None` if it is unknown.
        prompt_id: Id of the prompt; empty if it is unknown.
        group_id: Id of the group; empty if it is unknown.
        row: Row of the dataset; empty if it is unknown.
        policy_version: Oldest version of the policy that wrote a part of it; -1 if it is unknown.
        trained_version: Version of the policy that was trained with it; -1 if it is unknown.
        outcome: `trained`, or the reason why the trajectory was dropped; empty if no step took it.
        gap: Mean difference, without its sign, of the log-probabilities of engine and trainer, over the tokens that
            were trained on; `None` if it is unknown or was not asked for.
        seconds: Seconds of its parts, such as `model` and `tool pytest`, if they have spans and were asked for.
    """

    step: int
    table: str
    number: int
    group: int
    prompt: str
    completion: str
    reward: float | None
    components: dict[str, float]
    turns: tuple[Turn, ...] = ()
    trace_id: str = ""
    span_id: str = ""
    advantage: float | None = None
    loss: float | None = None
    prompt_id: str = ""
    group_id: str = ""
    row: str = ""
    policy_version: int = -1
    trained_version: int = -1
    outcome: str = ""
    gap: float | None = None
    seconds: dict[str, float] = {}

    @property
    def staleness(self) -> int | None:
        """Versions between the policy that wrote it and the one that was trained with it; `None` if it is unknown."""
        is_known = self.policy_version >= 0 and self.trained_version >= 0
        return self.trained_version - self.policy_version if is_known else None

    @property
    def conversation(self) -> tuple[Turn, ...]:
        """Its turns; of a completion of a table, what was asked and the answer."""
        if self.turns:
            return self.turns
        return Turn(author="prompt", text=self.prompt), Turn(author="completion", text=self.completion)


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
        searched: Number of samples, evenly spaced over the run, that were searched for phrases and faults.
        found: Number of samples that were asked for.
        phrases: Phrases that earn a reward, the most frequent first.
        sentences: What it says of them.
        other_step: The step of the samples to compare with, if asked for.
        samples: The first of the samples that were asked for, each with the one to compare it with, if asked for.
    """

    steps: tuple[int, int]
    tables: tuple[str, ...]
    searched: int
    found: int
    phrases: tuple[Phrase, ...]
    sentences: tuple[str, ...]
    other_step: int | None
    samples: tuple[Pair, ...]

"""Groups of completions that contradict each other: advantages, lengths and prompts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_rl
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.contradictions.groups import CompletionGroup
from tests.look.insight.columns_of_tests import said_of


def groups_of(
    advantages: Any, *, count: int = 40, rewards: Any = None, tokens: Any = None, prompt: Any = None
) -> list[CompletionGroup]:
    chance = np.random.default_rng(0)
    made = []
    for number in range(count):
        earned = np.asarray(chance.permutation([0.0, 0.0, 1.0, 1.0, 1.0, 0.0]) if rewards is None else rewards(number))
        lengths = chance.integers(50, 200, 6).astype(float) if tokens is None else np.asarray(tokens(number))
        asked = f"p{number}" if prompt is None else prompt(number)
        made.append(CompletionGroup(number // 2, f"g{number}", asked, earned, np.asarray(advantages(earned)), lengths))
    return made


def centered(rewards: Any) -> Any:
    return (rewards - rewards.mean()) / (rewards.std() + 1e-6)


@pytest.mark.parametrize(
    ("rule", "groups", "parameters"),
    [
        ("advantages_off_center", groups_of(lambda r: r - r[0]), {"algorithm": "grpo"}),
        ("advantages_off_center", groups_of(lambda r: r), {"algorithm.adv_estimator": "rloo"}),
        ("advantages_off_center", groups_of(lambda r: centered(r) + 0.4), {"algo": "dr_grpo"}),
        ("advantages_against_rewards", groups_of(lambda r: -centered(r)), {}),
        ("advantages_against_rewards", groups_of(lambda r: np.roll(centered(r), 3) - centered(r)), {"algo": "grpo"}),
        ("advantages_against_rewards", groups_of(lambda r: r.mean() - r), {"advantage_estimator": "GRPO"}),
        (
            "equal_completions",
            groups_of(lambda r: r * 0, rewards=lambda n: [n % 2] * 6, tokens=lambda n: [50.0 + n] * 6),
            {},
        ),
        ("one_prompt", groups_of(centered, prompt=lambda n: f"p{n // 2}"), {}),
        ("one_prompt", groups_of(centered, prompt=lambda _: "p"), {}),
        ("no_tokens", groups_of(centered, tokens=lambda _: [0.0] * 6), {}),
    ],
)
def test_groups_that_cannot_be(rule: str, groups: list[CompletionGroup], parameters: dict[str, object]) -> None:
    """Baselines of another kind, opposite or shuffled advantages, one seed, one prompt, no tokens."""
    assert said_of({}, parameters, groups) == [rule]


@pytest.mark.parametrize(
    ("groups", "parameters"),
    [
        (groups_of(centered), {"algorithm": "grpo"}),
        (groups_of(lambda r: r - r.mean()), {"algorithm": "grpo", "group_size": 6}),
        (groups_of(lambda r: r[:5] - r.mean()), {"algorithm": "grpo", "group_size": 6}),
        (groups_of(lambda r: r - 0.3), {"algorithm": "reinforce++"}),
        (groups_of(lambda r: r - r[0], count=8), {"algorithm": "grpo"}),
        (groups_of(lambda r: r * 0, rewards=lambda _: [1.0] * 6), {"algorithm": "grpo"}),
        (groups_of(lambda r: r * 0, rewards=lambda _: [0.0] * 6, tokens=lambda n: [100.0] * 6), {}),
        (groups_of(centered, tokens=lambda _: [np.nan] * 6), {}),
    ],
)
def test_groups_that_can_be(groups: list[CompletionGroup], parameters: dict[str, object]) -> None:
    """Ordinary advantages, groups of which a part was dropped, few groups, solved ones, tokens that nobody recorded."""
    assert said_of({}, parameters, groups) == []


def test_groups_of_a_run(tmp_path: Path) -> None:
    """Tickets with their groups, rewards and advantages are what the rules read."""
    run = otel_rl.init(project="p", dir=tmp_path, quiet=True, hardware=False, config={"algorithm": "grpo"})
    for number in range(12):
        with run.step(number):
            for group in range(2):
                _trained(run, number, f"{number}-{group}", [0.0, 1.0, 1.0])
    run.finish()
    sentences = [finding.sentence for finding in facts_of(otel_rl.open_run(run.dir)).findings]

    assert any(sentence.startswith("Advantages of a group do not have the mean 0") for sentence in sentences)


def _trained(run: otel_rl.Run, number: int, group: str, rewards: Iterable[float]) -> None:
    tickets = []
    for reward in rewards:
        with run.trajectory(policy_version=number, group_id=group) as trajectory:
            trajectory.generated(5)
            trajectory.rewarded(reward)
        tickets.append(trajectory.ticket())
    run.trained(tickets, policy_version=number, advantages=[*rewards])

"""Sealed, so do not read or run this before the end: metrics that lie."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import training
from benchmarks.verdicts.pieces.shapes import Course, at, bounded, line, steady

if TYPE_CHECKING:
    from benchmarks.verdicts.pieces.recording import Recording

REWARD = {"reward": line(0.3, 0.5, 0.02)}
SOLVED = (0.1, 0.35, 0.6, 0.85)


def _advantages_over_the_batch(recording: Recording, number: int, chance: np.random.Generator) -> None:
    rewards = np.array([chance.normal(level, 0.1, 8) for level in SOLVED])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    tickets = []
    for group, row in enumerate(rewards):
        for reward in row:
            name = f"{number}-{group}"
            with recording.trajectory(policy_version=number, group_id=name, prompt_id=name) as trajectory:
                trajectory.generated(100)
                trajectory.rewarded(float(reward))
            tickets.append(trajectory.ticket())
    recording.trained(tickets, policy_version=number, advantages=advantages.ravel().tolist())
    if not recording.has_calls:
        means = advantages.mean(axis=1)
        recording.log({f"advantages/group_{group}/mean": float(mean) for group, mean in enumerate(means)})


def _cumulative_throughput(steps: int, chance: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rates = 4000.0 * (1 + np.arange(steps)) * (1 + chance.normal(0, 0.03, steps))
    return np.asarray(rates, dtype=np.float64)


def _sometimes(value: float, otherwise: Course) -> Course:
    for step in (73, 140, 212):
        otherwise = at(step, value, otherwise, until=step + 1)
    return otherwise


SCENARIOS = (
    Scenario(
        "advantages_over_the_batch",
        "lie",
        partial(
            training.train, values=REWARD, steps=100, also=_advantages_over_the_batch, config={"adv_estimator": "grpo"}
        ),
        Label(right=(r"advantage", r"group"), place=(r"advantage",)),
        "XU-YIJIE/grpo-flat#2",
    ),
    Scenario(
        "throughput_without_a_bound",
        "lie",
        partial(
            training.train,
            values=REWARD | {"training_tok/s": _cumulative_throughput, "completions/mean_length": steady(250, 6)},
            steps=160,
            phases={"generate": steady(0.02, 0.0008), "update_actor": steady(0.01, 0.0004)},
        ),
        Label(
            right=(
                r"training_tok/s|tokens per second|throughput",
                r"but|although|while|same|constant|contradict|cumulat|length",
            ),
            place=(r"training_tok/s",),
            wrong=(r"(faster|sped up)",),
        ),
        "huggingface/trl#5293",
    ),
    Scenario(
        "two_deviations_of_one_reward",
        "lie",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.5, 0.02),
                "rewards/accuracy/mean": line(0.3, 0.5, 0.02),
                "reward_std": steady(0.21, 0.01),
                "rewards/accuracy/std": steady(0.46, 0.01),
            },
            usual={"grad_norm": steady(0.4, 0.05)},
        ),
        Label(
            right=(r"reward_std|rewards/accuracy/std|accuracy.{0,20}std", r"reward_std|differ|not|2\.\d|times|two"),
            place=(r"\bstd\b",),
        ),
        "modelscope/ms-swift#3877",
    ),
    Scenario(
        "percent_called_ratio",
        "lie",
        partial(
            training.train,
            values=REWARD
            | {
                "completions/clipped_ratio": bounded(steady(12.5, 3.0), 0, 100),
                "completions/mean_length": steady(300, 8),
            },
        ),
        Label(
            right=(r"clipped_ratio", r"fraction|between 0 and 1|outside|above 1|percent|more than 1"),
            place=(r"clipped_ratio",),
        ),
        "huggingface/trl#3229",
    ),
    Scenario(
        "no_valid_tokens",
        "lie",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.5, 0.02),
                "valid_tokens": _sometimes(0.0, steady(140, 6)),
                "loss": _sometimes(50.0, steady(0.05, 0.01)),
                "kl": _sometimes(38.0, steady(0.02, 0.003)),
                "grad_norm": _sometimes(0.9, steady(0.2, 0.02)),
            },
        ),
        Label(right=(r"valid_tokens|tokens", r"\b0\b|zero|no "), place=(r"\bloss\b|\bkl\b|grad_norm",)),
        "invergent-ai/surogate#74",
    ),
)

"""A policy of eight actions that really learns by GRPO, with the values that trainers log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.verdicts.pieces.recording import Recording

ACTIONS, GROUPS, SAMPLES = 8, 4, 8
"""Size of the policy, and of the batch of a step."""


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    exponents = np.exp(logits - logits.max())
    result: NDArray[np.float64] = exponents / exponents.sum()
    return result


def learn(
    recording: Recording,
    *,
    steps: int = 300,
    rate: float = 0.08,
    logs_list: bool = False,
    shift: float = 0.0,
    **run: Any,
) -> None:
    """Train; the reward of an action is its number, with noise, from `shift` to `shift` + 1."""
    chance = np.random.default_rng(3)
    logits, first = np.zeros(ACTIONS), _softmax(np.zeros(ACTIONS))
    recording.begin(config={"learning_rate": rate, "num_generations": SAMPLES, "beta": 0.0}, **run)
    for number in range(steps):
        with recording.step(number):
            before = _softmax(logits)
            with recording.phase("generate"):
                time.sleep(0.005)
                taken = chance.choice(ACTIONS, p=before, size=(GROUPS, SAMPLES))
                rewards = shift + taken / (ACTIONS - 1) + chance.normal(0, 0.1, taken.shape)
            with recording.phase("update_actor"):
                time.sleep(0.002)
                advantages = rewards - rewards.mean(axis=1, keepdims=True)
                gradient = np.array([advantages[taken == action].sum() for action in range(ACTIONS)]) / taken.size
                gradient = gradient - before * advantages.mean()
                logits = logits + rate * gradient
            row: dict[str, Any] = {
                "reward": rewards.ravel().tolist() if logs_list else float(rewards.mean()),
                "reward_std": float(rewards.std(axis=1).mean()),
                "entropy": float(-(before * np.log(before)).sum()),
                "kl": float((before * np.log(before / first)).sum()),
                "grad_norm": float(np.linalg.norm(gradient)),
                "loss": float(-advantages.mean()),
                "advantages/mean": float(advantages.mean()),
                "clip_ratio/region_mean": 0.0,
            }
            recording.log(row)
    recording.finish()

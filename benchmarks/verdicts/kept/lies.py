"""Metrics that lie: of one process, of the first weights, of another count, and never of anything but 0."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import training
from benchmarks.verdicts.pieces.shapes import Course, constant, decay, line, steady

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.verdicts.pieces.recording import Recording

REWARD = {"reward": line(0.3, 0.5, 0.02)}


def _evaluate(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 20 == 0:
        recording.log({"eval/accuracy": 0.3125, "eval/mean_length": 411.40625})


def _counted_again(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
    counted = np.cumsum(chance.integers(7600, 8400, steps)).astype(np.float64)
    counted[180:] -= counted[179]
    return counted


def _first_rank_alone(recording: Recording, number: int, chance: np.random.Generator) -> None:
    rewards = np.clip(chance.normal([0.25] * 4 + [0.6] * 12, 0.08) + 0.0004 * number, 0, 1)
    tickets = []
    for at, reward in enumerate(rewards):
        with recording.trajectory(policy_version=number, prompt_id=f"{number}-{at // 4}") as trajectory:
            trajectory.generated(int(chance.integers(80, 120)))
            trajectory.rewarded(float(reward))
        tickets.append(trajectory.ticket())
    recording.trained(tickets, policy_version=number)
    recording.log({"rollout/raw_reward": float(rewards[:4].mean()), "rollout/rewards": rewards.tolist()})


def _scaled(factor: float, seed: int, level: float, noise: float) -> Course:
    return lambda steps, _: factor * steady(level, noise)(steps, np.random.default_rng(seed))


def _whole_loss(steps: int, _: np.random.Generator) -> NDArray[np.float64]:
    policy, kl = (_scaled(1, *given)(steps, _) for given in ((5, 0.02, 0.006), (6, 0.4, 0.03)))
    return np.asarray(policy + 0.1 * kl, dtype=np.float64)


SCENARIOS = (
    Scenario(
        "peak_below_the_mean",
        "lie",
        partial(
            training.train,
            values=REWARD
            | {"perf/output_throughput": steady(2400, 50), "perf/peak_output_throughput": steady(930, 30)},
        ),
        Label(
            right=(r"peak_output_throughput", r"below|less|lower|smaller|under|mean|average"),
            place=(r"throughput",),
        ),
        "vllm-project/vllm#50677",
    ),
    Scenario(
        "evaluates_the_first_weights",
        "lie",
        partial(training.train, values={"reward": line(0.3, 0.62, 0.02)}, also=_evaluate),
        Label(
            right=(r"eval/accuracy", r"same|constant|exactly|never|identical|unchanged|not (change|move)"),
            place=(r"eval/",),
        ),
        "linhaowei1/NLPDL-2025Fall#31",
    ),
    Scenario(
        "counter_starts_over",
        "lie",
        partial(training.train, values=REWARD | {"tokens/total": _counted_again}),
        Label(
            right=(
                r"tokens/total",
                r"fell|falls|fall|reset|starts? (over|again)|drop|decreas|backward|went (down|back)|lower|not a total",
            ),
            place=(r"tokens/total",),
        ),
        "axolotl-ai-cloud/axolotl#3293",
    ),
    Scenario(
        "reward_of_the_first_rank",
        "lie",
        partial(training.train, values={"entropy": decay(0.9, 0.6, 0.01)}, also=_first_rank_alone),
        Label(
            right=(r"raw_reward", r"differ|not the mean|\bunlike\b|trajector|rollout/rewards"),
            place=(r"raw_reward",),
        ),
        "THUDM/slime#806",
    ),
    Scenario(
        "sum_called_mean",
        "lie",
        partial(
            training.train,
            values={
                "critic/score/mean": line(0.3, 0.5, 0.02),
                "actor/pg_loss": _scaled(8, 5, 0.02, 0.006),
                "actor/kl_loss": _scaled(8, 6, 0.4, 0.03),
                "actor/loss": _whole_loss,
                "actor/kl_coef": constant(0.1),
                "actor/grad_norm": steady(0.6, 0.08),
            },
            usual={},
            config={"kl_loss_coef": 0.1, "ppo_epochs": 2, "num_mini_batches": 4},
        ),
        Label(
            right=(r"actor/(pg_|kl_)?loss", r"\bsum\b|\b8 times|\b8\.0|ratio|factor|not add|parts"),
            place=(r"actor/(pg_|kl_)?loss",),
        ),
        "verl-project/verl#5766",
    ),
    Scenario(
        "value_clip_is_never",
        "lie",
        partial(
            training.train,
            values={
                "critic/value_clip_ratio": constant(0.0),
                "critic/values/mean": line(-1.0, 3.0, 0.4),
                "critic/value_update/max": steady(0.9, 0.06),
                "critic/vf_loss": decay(0.8, 0.2, 0.03),
                "critic/score/mean": line(0.3, 0.5, 0.02),
            },
            config={"value_clip": 0.2},
        ),
        Label(
            right=(r"value_clip_ratio", r"\b0\b|zero|never|always|constant"),
            place=(r"value_clip",),
        ),
        "RLinf/RLinf#1529",
    ),
)

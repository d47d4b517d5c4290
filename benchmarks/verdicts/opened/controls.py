"""Healthy programs, of which nothing may be accused."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.verdicts.labels import CIRCLE, Label, Scenario
from benchmarks.verdicts.pieces import controls, policy, ranks, training, workers
from benchmarks.verdicts.pieces.shapes import at, bounded, constant, decay, line, quantized, steady

if TYPE_CHECKING:
    from benchmarks.verdicts.pieces.recording import Recording


def _in_step(recording: Recording, rank: int, barrier: Any) -> None:
    chance = np.random.default_rng(rank)
    for number in range(120):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.02 + 0.002 * chance.random())
            with recording.phase("update_actor"):
                barrier.wait()
                time.sleep(0.01)
                barrier.wait()
            recording.log({"reward": 0.3 + 0.001 * number + 0.02 * chance.random()})
    recording.finish()


def _evaluations(steps: int, chance: np.random.Generator) -> Any:
    return np.where(np.arange(steps) % 20 == 19, 0.12, 0.0)


SCENARIOS = (
    Scenario("learns", "control", policy.learn),
    Scenario(
        "loss_near_zero",
        "control",
        partial(
            training.train,
            values={"reward": line(0.3, 0.5, 0.02), "loss": steady(0.0, 1e-8), "grad_norm": steady(0.4, 0.05)},
            config={"beta": 0.0, "num_iterations": 1},
        ),
        thread="huggingface/trl#3452",
    ),
    Scenario(
        "clip_ratio_is_zero",
        "control",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.5, 0.02),
                "clip_ratio/low_mean": constant(0.0),
                "clip_ratio/high_mean": constant(0.0),
                "clip_ratio/region_mean": constant(0.0),
            },
            config={"num_iterations": 1},
        ),
        thread="huggingface/trl#3120",
    ),
    Scenario(
        "advantages_with_mean_zero",
        "control",
        partial(
            training.train,
            values={
                "critic/score/mean": line(0.3, 0.5, 0.02),
                "critic/advantages/mean": steady(0.0, 3e-9),
                "critic/advantages/max": steady(1.7, 0.05),
                "critic/advantages/min": steady(-1.7, 0.05),
                "actor/pg_loss": steady(0.0, 1e-4),
                "actor/entropy": decay(0.9, 0.5, 0.01),
            },
        ),
        thread="verl-project/verl#4747",
    ),
    Scenario(
        "slow_update_fills_the_queue",
        "control",
        controls.asynchronous,
        Label(wrong=(CIRCLE, r"in vain")),
        is_asked_live=True,
    ),
    Scenario("first_checkpoint", "control", controls.first_checkpoint, is_asked_live=True),
    Scenario(
        "evaluation_each_20_steps",
        "control",
        partial(
            training.train,
            values={"reward": line(0.3, 0.5, 0.02)},
            steps=160,
            phases={
                "generate": steady(0.02, 0.0008),
                "update_actor": steady(0.01, 0.0004),
                "evaluate": _evaluations,
            },
        ),
    ),
    Scenario(
        "idle_reward_worker",
        "control",
        controls.idle_reward_worker,
        Label(wrong=(CIRCLE, r"reward 0 (sleeps|waits in vain|is stuck)")),
        is_asked_live=True,
    ),
    Scenario(
        "solved_data",
        "control",
        partial(
            training.train,
            values={
                "reward": at(120, 1.0, quantized(line(0.7, 0.99, 0.02, 0, 0.4), 64)),
                "entropy": decay(0.6, 0.2, 0.02),
            },
        ),
        thread="modelscope/ms-swift#3130",
    ),
    Scenario(
        "noisy_reward_without_trend",
        "control",
        partial(training.train, values={"reward": bounded(steady(0.45, 0.08), 0, 1), "kl": steady(0.02, 0.004)}),
    ),
    Scenario("workers_in_order", "control", partial(workers.train, work=workers.answer, steps=20)),
    Scenario("two_healthy_ranks", "control", partial(ranks.launch, rank=_in_step, waits=False)),
    Scenario(
        "reward_as_a_list",
        "control",
        partial(policy.learn, logs_list=True, shift=-2.0),
        Label(wrong=(r"constant",)),
    ),
)

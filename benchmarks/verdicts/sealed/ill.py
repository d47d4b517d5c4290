"""Sealed, so do not read or run this before the end: trainings that are ill."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import training
from benchmarks.verdicts.pieces.shapes import at, bounded, constant, line, quantized, steady

if TYPE_CHECKING:
    from benchmarks.verdicts.pieces.recording import Recording

PRAISE = r"as good as it can be|stop here"


def _equal_groups(recording: Recording, number: int, chance: np.random.Generator) -> None:
    tickets, advantages = [], []
    for group in range(4):
        reward = float(chance.integers(-3, 4))
        for sample in range(4):
            name = f"{number}-{group}"
            with recording.trajectory(policy_version=number, group_id=name, prompt_id=name) as trajectory:
                trajectory.generated(100 + sample)
                trajectory.rewarded(reward)
            tickets.append(trajectory.ticket())
            advantages.append(0.0)
    recording.trained(tickets, policy_version=number, advantages=advantages)


SCENARIOS = (
    Scenario(
        "entropy_rises",
        "ill",
        partial(
            training.train,
            values={
                "actor/entropy": line(0.3, 2.1, 0.02, 0.4, 0.9),
                "critic/score/mean": line(0.42, 0.25, 0.02, 0.6, 0.9),
                "response_length/mean": line(800, 1500, 20, 0.4, 0.9),
            },
        ),
        Label(
            right=(r"entropy", r"rose|rise|grew|increas|\bup\b|high"), place=(r"score|reward|length",), wrong=(PRAISE,)
        ),
        "verl-project/verl#2738",
    ),
    Scenario(
        "nucleus_on_one_side",
        "ill",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.4, 0.02),
                "sampling/importance_sampling_ratio/mean": steady(0.9, 0.002),
                "sampling/sampling_logp_difference/mean": steady(0.105, 0.002),
            },
            config={"top_p": 0.9, "temperature": 1.0},
        ),
        Label(right=(r"top_p",), place=(r"logp|log-prob|importance|\bgap\b|ratio|disagree|differ",)),
        "huggingface/trl#6789",
    ),
    Scenario(
        "groups_of_one",
        "ill",
        partial(
            training.train,
            values={
                "reward": steady(0.4, 0.05),
                "reward_std": constant(math.nan),
                "loss": constant(math.nan),
                "grad_norm": constant(math.nan),
            },
            config={"num_generations": 1, "scale_rewards": True},
        ),
        Label(right=(r"num_generations|groups? of (one|1)",), place=(r"nan|not finite|not a number",), wrong=(PRAISE,)),
        "ruc-datalab/DeepAnalyze#116",
    ),
    Scenario(
        "all_completions_cut",
        "ill",
        partial(
            training.train,
            values={
                "reward": line(0.2, 0.22, 0.02),
                "completions/mean_length": at(60, 512.0, line(380, 511, 4, 0, 0.2)),
                "completions/max_length": constant(512.0),
                "completions/clipped_ratio": at(60, 1.0, bounded(line(0.3, 0.98, 0.03, 0, 0.2), 0, 1)),
            },
            config={"max_completion_length": 512},
        ),
        Label(right=(r"clipped_ratio|truncat|\bcut\b|max_completion_length|length limit|maximum",), wrong=(PRAISE,)),
        "modelscope/ms-swift#4950",
    ),
    Scenario(
        "penalty_with_the_wrong_sign",
        "ill",
        partial(
            training.train,
            values={
                "reward": line(0.4, 0.35, 0.02),
                "kl": lambda steps, chance: (
                    0.01 * np.exp(5 * np.arange(steps) / steps) * (1 + chance.normal(0, 0.05, steps))
                ),
                "loss": line(0.02, -0.4, 0.01),
            },
            config={"kl_coef": -0.1},
        ),
        Label(right=(r"kl_coef",), place=(r"\bkl\b",), wrong=(PRAISE,)),
        "nebuly-ai/optimate#298",
    ),
    Scenario(
        "groups_without_a_signal",
        "ill",
        partial(
            training.train,
            values={
                "reward": quantized(bounded(steady(0.5, 0.08), 0, 1), 16),
                "reward_std": constant(0.0),
                "frac_reward_zero_std": constant(1.0),
                "loss": constant(0.0),
                "grad_norm": constant(0.0),
            },
            also=_equal_groups,
        ),
        Label(
            right=(
                r"without a signal|frac_reward_zero_std|reward_std|same reward|equal",
                r"group|\b1\b|100 %|all|zero|\b0\b",
            ),
            place=(r"grad_norm|loss",),
            wrong=(PRAISE,),
        ),
        "huggingface/trl#3857",
    ),
)

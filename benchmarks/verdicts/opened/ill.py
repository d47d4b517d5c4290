"""Trainings that are ill: what is recorded shows it, and often why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import training
from benchmarks.verdicts.pieces.shapes import bounded, constant, decay, line, steady, total

if TYPE_CHECKING:
    from benchmarks.verdicts.pieces.recording import Recording

PRAISE = r"as good as it can be|stop here"


def _garbled(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 5 == 0:
        words = ("so", "the", "answer", "is", "then", "seven", "because", "we", "add", "three")
        good = [" ".join(chance.choice(words, 40)) for _ in range(4)]
        recording.completions(["2 + 5 = ?"], [["!" * 300] * 4 if number >= 200 else good], rewards=[[0.0] * 4])


def _unmoved(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 10 == 0:
        recording.weights(number, {"lora_B.weight": np.zeros((16, 16)), "lora_A.weight": np.full((16, 16), 0.25)})


def _stale(recording: Recording, number: int, chance: np.random.Generator) -> None:
    tickets = []
    for at in range(4):
        with recording.trajectory(policy_version=max(0, number - 3), prompt_id=f"{number}-{at}") as trajectory:
            trajectory.generated(int(chance.integers(80, 120)))
            trajectory.rewarded(float(chance.normal(0.5, 0.1)))
        tickets.append(trajectory.ticket())
    recording.trained(tickets, policy_version=number)
    if not recording.has_calls:
        recording.log({"staleness/mean": float(min(number, 3))})


SCENARIOS = (
    Scenario(
        "entropy_collapses",
        "ill",
        partial(
            training.train,
            values={
                "actor/entropy": decay(0.9, 0.004, 0.05, rate=9),
                "critic/score/mean": line(0.3, 0.42, 0.02, 0, 0.4),
                "actor/ppo_kl": steady(0.001, 0.0003),
            },
        ),
        Label(right=(r"entropy", r"collaps|fell|fall|below|near(ly)? 0|low"), wrong=(PRAISE,)),
        "verl-project/verl#5953",
    ),
    Scenario(
        "reward_collapses_to_garbage",
        "ill",
        partial(
            training.train,
            values={
                "reward": bounded(line(0.6, 0.0, 0.03, 0.66, 0.7), 0.0, 1.0),
                "completion_length": line(180, 300, 6, 0.66, 0.7),
            },
            also=_garbled,
            content=True,
        ),
        Label(
            right=(r"reward", r"fell|fall|collaps|drop|\b0\b"), place=(r"repetitive|garbled|reward",), wrong=(PRAISE,)
        ),
        "facebookresearch/SPG#2",
    ),
    Scenario(
        "temperature_of_one_side",
        "ill",
        partial(
            training.train,
            values={
                "reward": steady(0.4, 0.03),
                "sampling/importance_sampling_ratio/mean": steady(2.0, 0.06),
                "sampling/sampling_logp_difference/mean": steady(0.69, 0.03),
                "kl": steady(0.02, 0.003),
            },
            config={"temperature": 0.6, "top_p": 1.0, "beta": 0.04},
        ),
        Label(right=(r"temperature",), place=(r"logp|log-prob|importance|\bgap\b|ratio|disagree|differ",)),
        "huggingface/trl#4159",
    ),
    Scenario(
        "format_pays_accuracy_falls",
        "ill",
        partial(
            training.train,
            values=total(
                {"accuracy": 1.0, "format": 1.0},
                {"accuracy": line(0.16, 0.05, 0.012), "format": bounded(line(0.45, 0.97, 0.02, 0, 0.8), 0, 1)},
            ),
        ),
        Label(
            right=(r"format", r"accuracy", r"fall|fell|down|drop|while|part"),
            place=(r"accuracy|format",),
            wrong=(PRAISE,),
        ),
        "huggingface/open-r1#255",
    ),
    Scenario(
        "gradient_is_zero",
        "ill",
        partial(
            training.train,
            values={"reward": steady(0.4, 0.03), "grad_norm": constant(0.0), "loss": steady(0.02, 0.005)},
            also=_unmoved,
        ),
        Label(
            right=(r"grad_norm|gradient|weights", r"\b0\b|zero|never|not (change|move)|unchanged|stay|equal"),
            wrong=(PRAISE,),
        ),
        "Goekdeniz-Guelmez/mlx-lm-lora#55",
    ),
    Scenario(
        "three_versions_behind",
        "ill",
        partial(
            training.train,
            values={
                "reward": line(0.5, 0.2, 0.02, 0.5, 0.8),
                "rollout_corr/kl": decay(0.001, 0.03, 0.1, rate=6),
                "entropy": line(0.9, 0.1, 0.02, 0.4, 0.8),
            },
            also=_stale,
        ),
        Label(
            right=(r"stale|versions?|\bold\b|off-policy", r"kl|log-prob|\bgap\b|entropy|differ|\b3\b"),
            place=(r"\bkl\b|entropy|reward",),
        ),
        "thinking-machines-lab/tinker-cookbook#822",
    ),
)

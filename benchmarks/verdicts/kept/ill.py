"""Trainings that are ill, under the names of several frameworks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import training
from benchmarks.verdicts.pieces.shapes import bounded, constant, decay, line, steady, total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.verdicts.pieces.recording import Recording

PRAISE = r"as good as it can be|stop here"


def _schedule(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
    return np.asarray(1e-6 * np.clip(1 - np.arange(steps) / (0.615 * steps), 0, 1), dtype=np.float64)


def _unmoved(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 10 == 0:
        recording.weights(number, {"layers.0.weight": np.linspace(-0.3, 0.3, 64).reshape(8, 8)})


def _moved(number: int) -> dict[str, NDArray[np.float64]]:
    return {f"layers.{at}.weight": np.linspace(-0.3, 0.3, 64).reshape(8, 8) * (1 + 0.01 * number) for at in range(3)}


def _synced_once(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 5 == 0:
        recording.weights(number, _moved(number))
        recording.weights(number, _moved(0), side="engine")


SCENARIOS = (
    Scenario(
        "schedule_ends_early",
        "ill",
        partial(
            training.train,
            values={"learning_rate": _schedule, "critic/score/mean": line(0.2, 0.42, 0.015, 0, 0.5)},
            steps=200,
            config={"lr_scheduler_type": "linear", "rollout_batch_size": 4},
        ),
        Label(
            right=(r"learning[_ ]rate|\blr\b", r"\b0\b|zero"),
            place=(r"reward.{0,40}flat|score.{0,40}flat|stopped (rising|learning)",),
            wrong=(PRAISE,),
        ),
        "alibaba/ROLL#407",
    ),
    Scenario(
        "cache_of_old_weights",
        "ill",
        partial(
            training.train,
            values={
                "train/reward": line(0.3, 0.38, 0.02, 0, 0.4),
                "train/loss": steady(0.02, 0.006),
                "train/gen_kl_error": line(0.0012, 0.06, 0.0008, 0.05, 1.0),
                "train/token_mult_prob_error": line(1.01, 1.5, 0.01, 0.05, 1.0),
                "train/grad_norm": steady(0.5, 0.05),
            },
            usual={},
            config={"vllm_cfg": {"enable_prefix_caching": True}, "in_flight_weight_updates": True},
        ),
        Label(
            right=(
                r"gen_kl_error|token_mult_prob_error|sampler|log-?prob|engine and trainer|generat.{0,30}train",
                r"differ|disagree|mismatch|grew|grow|rose|rise|\btimes\b|twice|higher|up to",
            ),
            place=(r"gen_kl_error|token_mult_prob_error|\bkl\b",),
            wrong=(PRAISE,),
        ),
        "NVIDIA-NeMo/RL#4018",
    ),
    Scenario(
        "returns_not_normalized",
        "ill",
        partial(
            training.train,
            values={
                "rollout/ep_rew_mean": steady(-42000, 900),
                "rollout/ep_len_mean": constant(200),
                "train/value_loss": decay(1.6e6, 7.4e5, 0.03),
                "train/explained_variance": steady(6e-8, 3e-8),
                "train/entropy_loss": steady(-1.33, 0.008),
                "train/clip_fraction": bounded(steady(0.002, 0.003), 0, 1),
                "train/approx_kl": bounded(steady(0.002, 0.0005), 0, 1),
                "train/policy_gradient_loss": steady(-0.0024, 0.0004),
            },
            usual={"train/learning_rate": constant(3e-4)},
            config={"ent_coef": 0.15, "vf_coef": 0.5, "gamma": 0.99, "n_epochs": 10},
        ),
        Label(
            right=(
                r"explained_variance|value_loss|value function|critic",
                r"\b0\b|zero|scale|normaliz|large|nothing|not (learn|explain|predict)",
            ),
            place=(r"explained_variance|value_loss|entropy_loss|ep_rew_mean|reward.{0,30}flat",),
            wrong=(PRAISE,),
        ),
        "DLR-RM/stable-baselines3#2240",
    ),
    Scenario(
        "all_parts_fall_as_kl_surges",
        "ill",
        partial(
            training.train,
            values=total(
                {"plan": 1.0, "entities": 1.0, "format": 1.0},
                {
                    "plan": bounded(lambda steps, chance: _rise_and_fall(steps, chance, 0.3, 0.6, 0.2), 0, 1),
                    "entities": bounded(lambda steps, chance: _rise_and_fall(steps, chance, 0.25, 0.5, 0.15), 0, 1),
                    "format": bounded(lambda steps, chance: _rise_and_fall(steps, chance, 0.6, 0.95, 0.4), 0, 1),
                },
            )
            | {"kl": line(0.04, 3.0, 0.02, 0.66, 0.72)},
            config={"beta": 0.04, "learning_rate": 5e-6},
        ),
        Label(
            right=(r"reward", r"fell|falls|fall|drop|collaps", r"\bkl\b"),
            place=(r"\bkl\b|reward",),
            wrong=(PRAISE,),
        ),
        "modelscope/ms-swift#6550",
    ),
    Scenario(
        "answers_get_short",
        "ill",
        partial(
            training.train,
            values={
                "completion_length": decay(350, 38, 0.04, rate=5),
                "rewards/iou/mean": line(0.5, 0.56, 0.02),
                "reward": line(0.5, 0.56, 0.02),
            },
        ),
        Label(
            right=(
                r"completion_length|length of completions|completions|lengths?",
                r"short|fell|falls|fall|collaps|from 3\d\d",
            ),
            place=(r"completion_length|length",),
            wrong=(PRAISE,),
        ),
        "om-ai-lab/VLM-R1#280",
    ),
    Scenario(
        "clipped_to_nothing",
        "ill",
        partial(
            training.train,
            values={"reward": steady(0.31, 0.02), "grad_norm": steady(0.62, 0.06)},
            steps=200,
            also=_unmoved,
            config={"max_grad_norm": 0.0, "learning_rate": 3e-4, "num_envs": 64},
        ),
        Label(
            right=(
                r"max_grad_norm|weights|parameters|tensors",
                r"\b0(\.0)?\b|zero|never|not (change|move)|unchanged|the same|equal",
            ),
            place=(r"reward.{0,30}(flat|constant)",),
            wrong=(PRAISE,),
            plain=(r"max_grad_norm", r"\b0(\.0)?\b|zero"),
        ),
        "strands-labs/robots#2028",
    ),
    Scenario(
        "engine_keeps_its_weights",
        "ill",
        partial(
            training.train,
            values={
                "reward": steady(0.35, 0.02),
                "sampling/sampling_logp_difference/mean": line(0.01, 0.35, 0.008),
                "sampling/importance_sampling_ratio/mean": line(1.0, 0.7, 0.01),
                "kl": line(0.001, 0.05, 0.001),
            },
            also=_synced_once,
            config={"vllm_enable_sleep_mode": True, "vllm_mode": "colocate"},
        ),
        Label(
            right=(r"weights|tensors?", r"hold|still|differ|not (updated|synced|sent)|version 0"),
            place=(r"log-?prob|logp|importance|engine and trainer|disagree",),
            wrong=(PRAISE, r"lower the temperature|temperature"),
            plain=(
                r"log-?prob|logp|engine and trainer|sampling_",
                r"grew|grow|rose|rise|differ|disagree|twice|times|up to",
            ),
        ),
        "huggingface/trl#5312",
    ),
)


def _rise_and_fall(
    steps: int, chance: np.random.Generator, first: float, top: float, last: float
) -> NDArray[np.float64]:
    rise = line(first, top, 0.015, 0, 0.6)(steps, chance)
    return rise + line(0, last - top, 0.0, 0.66, 0.74)(steps, chance)

"""Metrics that lie: what is recorded contradicts them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import training
from benchmarks.verdicts.pieces.shapes import Course, bounded, line, quantized, steady, total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.verdicts.pieces.recording import Recording

PRAISE = r"as good as it can be|stop here"
REWARD = {"reward": line(0.3, 0.5, 0.02)}


def _trained_tokens(recording: Recording, number: int, chance: np.random.Generator) -> None:
    tickets = []
    for at in range(4):
        with recording.trajectory(policy_version=number, prompt_id=f"{number}-{at}") as trajectory:
            trajectory.generated(100)
            trajectory.rewarded(float(chance.normal(0.5, 0.1)))
        tickets.append(trajectory.ticket())
    recording.trained(tickets, policy_version=number)


def _counted(each: int) -> Course:
    def course(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
        return each * (1.0 + np.arange(steps, dtype=np.float64))

    return course


SCENARIOS = (
    Scenario(
        "weights_left_out_of_the_sum",
        "lie",
        partial(
            training.train,
            values=total(
                {"accuracy": 1.0, "format": 1.0},
                {"accuracy": line(0.3, 0.5, 0.02), "format": bounded(line(0.6, 0.9, 0.02), 0, 1)},
            ),
            config={"reward_funcs": ["accuracy", "format"], "reward_weights": [0.7, 0.3]},
        ),
        Label(right=(r"reward", r"\bsum\b|weight"), place=(r"reward",)),
        "huggingface/trl#5352",
    ),
    Scenario(
        "clip_ratio_of_the_batch_width",
        "lie",
        partial(
            training.train,
            values={
                "critic/score/mean": line(0.3, 0.5, 0.02),
                "response_length/mean": steady(900, 25),
                "response_length/max": bounded(steady(2200, 120), 1500, 3000),
                "response_length/clip_ratio": lambda steps, chance: chance.integers(1, 3, steps) / 64,
            },
            config={"data": {"max_response_length": 4096}},
        ),
        Label(
            right=(r"clip_ratio", r"max|limit|4,?096|below|under"), place=(r"clip_ratio",), wrong=(r"raise the limit",)
        ),
        "verl-project/verl#7817",
    ),
    Scenario(
        "step_time_without_the_rest",
        "lie",
        partial(
            training.train,
            values=REWARD | {"step_time": steady(0.012, 0.0005)},
            steps=150,
            phases={"generate": steady(0.02, 0.0008), "update_actor": steady(0.012, 0.0004)},
        ),
        Label(right=(r"step_time|step time", r"\bwall\b|below|less|short|leaves? out|only"), place=(r"step_time",)),
        "huggingface/trl#6490",
    ),
    Scenario(
        "tokens_counted_twice",
        "lie",
        partial(
            training.train,
            values=REWARD | {"num_tokens": _counted(800), "tokens/trained": _counted(400)},
            also=_trained_tokens,
        ),
        Label(right=(r"num_tokens", r"twice|double|2 times|\btimes\b|ratio|factor"), place=(r"num_tokens",)),
        "huggingface/trl#7100",
    ),
    Scenario(
        "negative_although_absolute",
        "lie",
        partial(
            training.train,
            values={
                "objective/kl": steady(-0.22, 0.04),
                "objective/scores": line(0.3, 0.5, 0.02),
                "val/accuracy": quantized(line(0.3, 0.5, 0.01), 256),
            },
            config={"kl_penalty": "abs", "init_kl_coef": 0.2},
        ),
        Label(right=(r"objective/kl|\bkl\b", r"negative|below 0|less than 0|kl_penalty|\babs\b"), place=(r"\bkl\b",)),
        "huggingface/trl#1161",
    ),
)

"""Slow-downs: bit by bit, in single steps, of one trajectory, of one part, and from the beginning."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.verdicts.labels import NETWORK, Label, Scenario
from benchmarks.verdicts.pieces import groups, ranks, training
from benchmarks.verdicts.pieces.shapes import line, steady

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.verdicts.pieces.groups import Timed
    from benchmarks.verdicts.pieces.recording import Recording

REWARD = {"reward": line(0.3, 0.5, 0.02)}
SLOWER = r"slower|longer|grew|grow|rose|more time|bit by bit"
SPIKES = SLOWER + r"|took|takes?\b|\+\d"
OTHER = r"more engines|add an? engine|cap the length|length of completions"


def _every_fifth(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
    numbers = np.arange(steps)
    return np.where(numbers % 5 == 4, 0.02 + 0.5 * numbers / steps, 0.0)


def _compiled(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
    seconds = 0.01 + 0.0004 * chance.normal(size=steps)
    seconds[[3, 31, 58, 77, 83, 104, 126, 141]] += 0.35
    return seconds


def _with_one_long(timed: Timed, number: int, at: int) -> float:
    turns = 6 if number >= 30 and at == number % 4 else 1
    for _ in range(turns):
        with timed.part("model", name="policy"):
            time.sleep(0.03 + 0.003 * random.random())
    timed.generated(turns * random.randint(480, 520))
    return groups.reward(number)


def _with_sandboxes(timed: Timed, number: int, at: int) -> float:
    with timed.part("environment", name="make_sandbox"):
        time.sleep(0.01 + 0.0012 * number + 0.001 * random.random())
    with timed.part("model", name="policy"):
        time.sleep(0.03 + 0.003 * random.random())
    timed.generated(random.randint(480, 520))
    return groups.reward(number)


def _with_a_judge(timed: Timed, number: int, at: int) -> float:
    with timed.part("model", name="policy"):
        time.sleep(0.03 + 0.003 * random.random())
    timed.generated(random.randint(480, 520))
    with timed.part("verifier", name="judge"):
        time.sleep((0.1 if number >= 40 else 0.015) + 0.002 * random.random())  # "429", and another try later
    return groups.reward(number)


def _collect_garbage(recording: Recording, rank: int, barrier: Any) -> None:
    chance = np.random.default_rng(rank)
    pauses = np.random.default_rng(9).integers(0, 3, 120)
    for number in range(120):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.02 + 0.001 * chance.random())
                barrier.wait()
            with recording.phase("forward_backward"):
                is_collecting = number % 7 == 5 and pauses[number] == rank
                seconds = 0.02 + 0.001 * chance.random() + (0.15 if is_collecting else 0.0)
                time.sleep(seconds)
            with recording.phase("all_reduce"):
                barrier.wait()
            row = {"reward": 0.3 + 0.001 * number + 0.02 * chance.random()}
            recording.log(row if recording.has_calls else row | {"timing_s/forward_backward": seconds})
    recording.finish()


SCENARIOS = (
    Scenario(
        "scores_one_after_another",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=120,
            phases={
                "generate": steady(0.02, 0.0008),
                "reward": steady(0.045, 0.0012),
                "update_actor": steady(0.012, 0.0004),
            },
        ),
        Label(
            right=(r"\breward\b[^.,;]{0,30}\d+ ?%|\breward\b.{0,40}(most|longest|largest)",),
            place=(r"\breward\b",),
            wrong=(OTHER, r"(generate|update_actor) (grew|rose)"),
        ),
        "google/tunix#1904",
    ),
    Scenario(
        "checkpoints_take_longer",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=150,
            phases={
                "generate": steady(0.02, 0.0008),
                "update_actor": steady(0.01, 0.0004),
                "save_checkpoint": _every_fifth,
            },
        ),
        Label(
            right=(r"save_checkpoint", SLOWER),
            place=(r"save_checkpoint",),
            wrong=(OTHER, r"(generate|update_actor) (grew|rose)"),
        ),
        "ray-project/ray#850",
    ),
    Scenario(
        "compiled_again",
        "slow",
        partial(
            training.train,
            values=REWARD | {"response_length/mean": steady(500, 25)},
            steps=150,
            phases={"generate": steady(0.02, 0.0008), "update_actor": _compiled},
        ),
        Label(right=(r"update_actor", SPIKES), place=(r"update_actor",), wrong=(OTHER, r"generate (grew|rose)")),
        "pytorch/torchtitan#2823",
    ),
    Scenario(
        "prefixes_computed_again",
        "slow",
        partial(
            training.train,
            values=REWARD
            | {
                "response_length/mean": steady(900, 15),
                "prompt_length/mean": steady(3000, 60),
                "engine/prefix_cache_hit_rate": line(0.86, 0.03, 0.01, 0.45, 0.5),
            },
            steps=140,
            phases={"generate": line(0.03, 0.055, 0.001, 0.45, 0.5), "update_actor": steady(0.015, 0.0005)},
        ),
        Label(
            right=(r"generate", r"prefix|cache"),
            place=(r"generate",),
            wrong=(OTHER, r"update_actor (grew|rose)"),
        ),
        "Tencent-Hunyuan/UniRL#94",
    ),
    Scenario(
        "one_of_a_group_is_long",
        "slow",
        partial(groups.train, work=_with_one_long),
        Label(
            right=(
                r"generate|trajector|rollout|completion",
                r"longest|slowest|one (of|trajectory|completion)|single|tail|response_length/max|\d on the path",
            ),
            place=(r"generate",),
            wrong=(r"more engines|add an? engine", r"update_actor (grew|rose)"),
        ),
        "verl-project/verl#2445",
    ),
    Scenario(
        "sandboxes_left_behind",
        "slow",
        partial(groups.train, work=_with_sandboxes),
        Label(
            right=(r"make_sandbox|environment", SLOWER),
            place=(r"generate",),
            wrong=(OTHER, r"update_actor (grew|rose)"),
        ),
        "thinking-machines-lab/tinker-cookbook#943",
    ),
    Scenario(
        "judge_is_rate_limited",
        "slow",
        partial(groups.train, work=_with_a_judge, steps=80),
        Label(
            right=(r"judge|verifier", SPIKES),
            place=(r"generate",),
            wrong=(OTHER, r"update_actor (grew|rose)"),
        ),
        "verl-project/verl#4107",
    ),
    Scenario(
        "garbage_collected_at_random",
        "slow",
        partial(ranks.launch, rank=_collect_garbage, world=3, waits=False),
        Label(
            right=(r"forward_backward", SPIKES),
            place=(r"all_reduce|rank [012]",),
            wrong=(
                OTHER,
                NETWORK,
                r"rank [012] (is|was) (slow|a straggler)",
                r"generate (grew|rose)",
            ),
        ),
        "pytorch/torchtitan#148",
    ),
)

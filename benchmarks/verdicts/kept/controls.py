"""Healthy programs that look unusual, of which nothing may be accused."""

from __future__ import annotations

import multiprocessing
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.verdicts.labels import CIRCLE, NETWORK, Label, Scenario
from benchmarks.verdicts.pieces import endpoint, groups, training
from benchmarks.verdicts.pieces.controls import compute
from benchmarks.verdicts.pieces.recording import Recording, mark
from benchmarks.verdicts.pieces.shapes import bounded, constant, decay, line, quantized, steady
from benchmarks.verdicts.pieces.workers import answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.verdicts.pieces.groups import Timed


def _captures_graphs(recording: Recording) -> None:
    recording.begin()
    with recording.phase("capture_graphs"):
        mark()
        compute(9.0)
    for number in range(30):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.03)
            with recording.phase("update_actor"):
                time.sleep(0.02)
            recording.log({"reward": 0.3 + 0.01 * number, "loss": 0.05 + 0.01 * random.random()})
    recording.finish()


def _evaluates_for_long(recording: Recording) -> None:
    recording.begin()
    for number in range(40):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.04)
            with recording.phase("update_actor"):
                time.sleep(0.02)
            recording.log({"reward": 0.3 + 0.005 * number + 0.02 * random.random()})
            if number % 10 == 9:
                with recording.phase("evaluate"):
                    if number == 29:
                        mark()
                    compute(9.0 if number == 29 else 0.3)
                recording.log({"eval/accuracy": 0.25 + 0.004 * number})
    recording.finish()


def _roll_out(has_calls: bool, variables: dict[str, str], trajectories: Any) -> None:
    recording = Recording(has_calls).join(variables, "rollout")
    for prompt in range(24):
        with recording.trajectory(policy_version=prompt // 4, prompt_id=prompt) as trajectory:
            with trajectory.part("tool", name="repository_tests"):
                if prompt == 16:
                    compute(9.0)
            trajectory.rewarded(answer(trajectory, prompt))
        trajectories.put(trajectory.ticket() if has_calls else None)
    recording.finish()


def _waits_for_a_long_tool(recording: Recording) -> None:
    recording.begin()
    context = multiprocessing.get_context("spawn")
    trajectories = context.Queue()
    given = (recording.has_calls, recording.environment(), trajectories)
    process = context.Process(target=_roll_out, args=given)
    process.start()
    for number in range(6):
        with recording.step(number):
            with recording.phase("get_batch"):
                if number == 4:
                    mark()
                batch = [trajectories.get() for _ in range(4)]
            with recording.phase("update_actor"):
                time.sleep(0.05)
                recording.trained([ticket for ticket in batch if ticket], policy_version=number)
            recording.log({"loss": 0.1 - 0.001 * number, "reward": 0.5 + 0.01 * number})
    process.join()
    recording.finish()


def _idle_engine(recording: Recording) -> None:
    port = endpoint.start()
    recording.begin(hardware={"engines": [endpoint.metrics_url(port)], "interval": 0.5})
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                for _ in range(4):
                    with recording.trajectory(policy_version=number, prompt_id=number) as trajectory:
                        endpoint.asked(trajectory, port)
            with recording.phase("update_actor"):
                if number == 12:
                    mark()
                compute(9.0 if number == 12 else 0.2)
            with recording.phase("weight_sync", version=number + 1):
                endpoint.ask(port, "/set/paused")
                endpoint.ask(port, "/update_weights")
                endpoint.ask(port, "/set/ready")
            recording.log({"reward": 0.4 + 0.005 * number + 0.01 * random.random()})
    recording.finish()


def _resumed(recording: Recording) -> None:
    chance = np.random.default_rng(4)
    for first, end in ((0, 60), (50, 120)):
        recording.begin(id="resumed")
        for number in range(first, end):
            with recording.step(number):
                with recording.phase("generate"):
                    time.sleep(0.012)
                with recording.phase("update_actor"):
                    time.sleep(0.008)
                recording.log({"reward": 0.3 + 0.001 * number + 0.02 * chance.random()})
        recording.finish()


def _replaced(has_calls: bool, variables: dict[str, str], trajectories: Any, first: int) -> None:
    recording = Recording(has_calls).join(variables, "rollout")
    for prompt in range(first, first + 40):
        with recording.trajectory(policy_version=prompt // 4, prompt_id=prompt) as trajectory:
            trajectory.rewarded(answer(trajectory, prompt))
        trajectories.put(trajectory.ticket() if has_calls else None)
    recording.finish()


def _worker_replaced(recording: Recording) -> None:
    recording.begin()
    context = multiprocessing.get_context("spawn")
    trajectories, process = context.Queue(), None
    for number in range(20):
        if number % 10 == 0:
            given = (recording.has_calls, recording.environment(), trajectories, number * 4)
            process = context.Process(target=_replaced, args=given)
            process.start()
        with recording.step(number):
            with recording.phase("generate"):
                batch = [trajectories.get() for _ in range(4)]
            with recording.phase("update_actor"):
                time.sleep(0.03)
                recording.trained([ticket for ticket in batch if ticket], policy_version=number)
            recording.log({"reward": 0.5 + 0.005 * number, "loss": 0.1 + 0.01 * random.random()})
    if process is not None:
        process.join()
    recording.finish()


def _fails_now_and_then(timed: Timed, number: int, at: int) -> float:
    with timed.part("model", name="policy"):
        time.sleep(0.02 + 0.002 * random.random())
    timed.generated(random.randint(450, 550))
    if (number * 4 + at) % 47 == 13:
        raise groups.RolloutFailed("the sandbox was evicted")
    return groups.reward(number)


def _accumulated(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 4 == 3:
        recording.log({"grad_norm": 0.6 + 0.08 * chance.normal(), "learning_rate": 1e-6, "optimizer_step": number // 4})


def _uneven(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
    return np.asarray(np.exp(chance.normal(0.0, 0.35, steps)), dtype=np.float64)


def _saves(steps: int, chance: np.random.Generator) -> NDArray[np.float64]:
    return np.where(np.arange(steps) % 10 == 9, chance.exponential(0.08, steps) + 0.02, 0.0)


SCENARIOS = (
    Scenario("captures_graphs_first", "control", _captures_graphs, is_asked_live=True),
    Scenario("evaluates_for_long", "control", _evaluates_for_long, is_asked_live=True),
    Scenario(
        "waits_for_a_long_tool",
        "control",
        _waits_for_a_long_tool,
        Label(wrong=(CIRCLE, NETWORK, r"in vain", r"rollout 0 (is stuck|hangs)")),
        is_asked_live=True,
    ),
    Scenario(
        "engine_idle_in_an_update",
        "control",
        _idle_engine,
        Label(wrong=(NETWORK, r"in vain", r"does not answer|is stuck")),
        is_asked_live=True,
    ),
    Scenario(
        "value_function_learns",
        "control",
        partial(
            training.train,
            values={
                "rollout/ep_rew_mean": line(22, 440, 6, 0, 0.8),
                "rollout/ep_len_mean": line(22, 440, 6, 0, 0.8),
                "train/value_loss": decay(55, 4, 0.06),
                "train/explained_variance": bounded(line(-0.4, 0.93, 0.04, 0, 0.4), -1, 1),
                "train/entropy_loss": line(-0.69, -0.5, 0.006),
                "train/clip_fraction": bounded(steady(0.09, 0.02), 0, 1),
                "train/approx_kl": bounded(steady(0.008, 0.0015), 0, 1),
                "train/policy_gradient_loss": steady(-0.012, 0.002),
            },
            usual={"train/learning_rate": constant(3e-4)},
            config={"ent_coef": 0.0, "vf_coef": 0.5, "learning_rate": 3e-4},
        ),
        thread="DLR-RM/stable-baselines3#1465",
    ),
    Scenario(
        "uneven_lengths",
        "control",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.5, 0.03),
                "response_length/mean": lambda steps, _: 600 * _uneven(steps, np.random.default_rng(8)),
            },
            steps=160,
            phases={
                "generate": lambda steps, _: 0.02 * _uneven(steps, np.random.default_rng(8)),
                "update_actor": lambda steps, _: 0.01 * _uneven(steps, np.random.default_rng(8)),
            },
        ),
    ),
    Scenario("resumed_from_a_checkpoint", "control", _resumed),
    Scenario(
        "accumulates_gradients",
        "control",
        partial(
            training.train,
            values={"reward": line(0.3, 0.5, 0.03), "loss": steady(0.012, 0.01)},
            usual={},
            also=_accumulated,
            config={"gradient_accumulation_steps": 4, "learning_rate": 1e-6},
        ),
        thread="huggingface/trl#7047",
    ),
    Scenario(
        "noisy_disk",
        "control",
        partial(
            training.train,
            values={"reward": line(0.3, 0.5, 0.03)},
            steps=180,
            phases={"generate": steady(0.02, 0.0008), "update_actor": steady(0.01, 0.0004), "save_checkpoint": _saves},
        ),
    ),
    Scenario("some_rollouts_fail", "control", partial(groups.train, work=_fails_now_and_then, steps=80)),
    Scenario("worker_replaced", "control", _worker_replaced),
    Scenario(
        "rare_rewards",
        "control",
        partial(
            training.train,
            values={
                "reward": quantized(line(0.012, 0.3, 0.012, 0.5, 1.0), 64),
                "entropy": decay(0.8, 0.5, 0.02),
                "kl": line(0.0005, 0.02, 0.0004),
            },
        ),
    ),
)

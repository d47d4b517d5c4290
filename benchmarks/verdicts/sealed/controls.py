"""Sealed, so do not read or run this before the end: healthy programs."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verdicts.labels import CIRCLE, TRACKER, Label, Scenario
from benchmarks.verdicts.pieces import controls, endpoint, policy, training, workers
from benchmarks.verdicts.pieces.recording import Recording, mark, sleep_forever
from benchmarks.verdicts.pieces.shapes import at, bounded, constant, decay, line, steady, total

_KEPT: list[bytearray] = []


def _fill_cache(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number < 20:
        _KEPT.append(bytearray(8 << 20))


def _ask_engine(port: int, recording: Recording, number: int, chance: np.random.Generator) -> None:
    endpoint.ask(port)


def healthy_engine(recording: Recording) -> None:
    """Ask an engine that answers."""
    port = endpoint.start()
    engines = {"engines": [endpoint.metrics_url(port)], "interval": 0.3}
    phases = {"generate": steady(0.2, 0.006), "update_actor": steady(0.1, 0.003)}
    values = {"reward": line(0.3, 0.5, 0.02)}
    training.train(recording, values, steps=50, phases=phases, also=partial(_ask_engine, port), hardware=engines)


def load_sample(index: int) -> int:
    """Load a sample."""
    return index


def idle_loader(recording: Recording) -> None:
    """Compute for a long time once, while a pool of loaders has nothing to do."""
    recording.begin()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for number in range(12):
            with recording.step(number):
                with recording.phase("data"):
                    pool.map(load_sample, range(8))
                with recording.phase("update_actor"):
                    if number == 8:
                        mark()
                    controls.compute(10.0 if number == 8 else 0.2)
                recording.log({"loss": 0.1 - 0.001 * number})
    recording.finish()


def idle_threads(recording: Recording) -> None:
    """Compute for a long time once, while listeners, a timer and a pool wait."""
    recording.begin()
    pool = ThreadPoolExecutor(4)
    list(pool.map(load_sample, range(8)))
    event = threading.Event()
    threading.Thread(target=event.wait, name="listener", daemon=True).start()
    threading.Thread(target=sleep_forever, name="heartbeat", daemon=True).start()
    for number in range(12):
        with recording.step(number):
            with recording.phase("update_actor"):
                if number == 8:
                    mark()
                controls.compute(10.0 if number == 8 else 0.2)
            recording.log({"loss": 0.1 - 0.001 * number})
    recording.finish()


def _levels(steps: int, chance: np.random.Generator) -> Any:
    return np.minimum(np.arange(steps) // 100, 2).astype(float)


def _reward_by_level(steps: int, chance: np.random.Generator) -> Any:
    in_level = np.arange(steps) % 100 / 100
    return 0.35 + 0.4 * in_level + chance.normal(0, 0.02, steps)


SCENARIOS = (
    Scenario(
        "curriculum",
        "control",
        partial(training.train, values={"reward": _reward_by_level, "curriculum/level": _levels}),
    ),
    Scenario(
        "long_first_step",
        "control",
        partial(
            training.train,
            values={"reward": line(0.3, 0.5, 0.02)},
            steps=160,
            phases={
                "generate": at(0, 1.2, steady(0.02, 0.0008), until=1),
                "update_actor": at(0, 0.5, steady(0.01, 0.0004), until=1),
            },
        ),
    ),
    Scenario(
        "longer_answers_as_fast",
        "control",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.6, 0.02),
                "response_length/mean": line(400, 520, 12),
                "response_length/clip_ratio": constant(0.0),
            },
            steps=160,
            phases={"generate": steady(0.02, 0.0008), "update_actor": steady(0.01, 0.0004)},
        ),
    ),
    Scenario(
        "entropy_decays",
        "control",
        partial(training.train, values={"reward": line(0.3, 0.7, 0.02), "entropy": decay(1.2, 0.45, 0.02)}),
    ),
    Scenario("negative_rewards_improve", "control", partial(policy.learn, shift=-3.0, steps=200)),
    Scenario("healthy_engine", "control", healthy_engine),
    Scenario(
        "learning_rate_decays_to_zero",
        "control",
        partial(
            training.train,
            values={
                "reward": line(0.3, 0.5, 0.02),
                "learning_rate": lambda steps, chance: 5e-7 * (1 + np.cos(np.pi * np.arange(1, steps + 1) / steps)),
                "grad_norm": steady(0.4, 0.05),
            },
        ),
    ),
    Scenario(
        "kl_rises_slowly",
        "control",
        partial(
            training.train,
            values={"reward": line(0.3, 0.55, 0.02), "kl": line(0.0008, 0.02, 0.0003)},
            config={"beta": 0.04},
        ),
    ),
    Scenario(
        "two_parts_rise",
        "control",
        partial(
            training.train,
            values=total(
                {"accuracy": 0.8, "format": 0.2},
                {"accuracy": line(0.3, 0.5, 0.02), "format": bounded(line(0.5, 0.9, 0.02), 0, 1)},
            ),
            config={"reward_funcs": ["accuracy", "format"], "reward_weights": [0.8, 0.2]},
        ),
    ),
    Scenario(
        "cache_that_fills_and_stays",
        "control",
        partial(training.train, values={"reward": line(0.3, 0.5, 0.02)}, steps=200, also=_fill_cache),
    ),
    Scenario("idle_loader", "control", idle_loader, Label(wrong=(TRACKER, CIRCLE)), is_asked_live=True),
    Scenario("idle_threads", "control", idle_threads, Label(wrong=(r"listener|heartbeat",)), is_asked_live=True),
    Scenario(
        "one_worker_is_enough",
        "control",
        partial(workers.train, work=workers.answer, workers=1, steps=25),
        Label(wrong=(CIRCLE,)),
    ),
)

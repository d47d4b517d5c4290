"""Slow-downs: since when, and what of the step grew."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import endpoint, ranks, training
from benchmarks.verdicts.pieces.shapes import line, steady

if TYPE_CHECKING:
    from benchmarks.verdicts.pieces.recording import Recording

REWARD = {"reward": line(0.3, 0.5, 0.02)}


def _show(ports: dict[int, tuple[int, int]], change: int, recording: Recording, number: int, chance: Any) -> None:
    """Let the metrics of each engine show the requests before and after the change."""
    for at, (port, loads) in enumerate(ports.items()):
        if number in (0, change):
            endpoint.ask(port, f"/show/running/{loads[number == change]}")
        if not recording.has_calls:
            recording.log({f"engine_{at}/num_requests_running": float(loads[number >= change])})


def with_engines(recording: Recording, *, loads: tuple[tuple[int, int], ...], slow: float) -> None:
    """Train with an engine for each pair of loads; `generate` takes `slow` times as long from the middle on."""
    ports = {endpoint.start(): load for load in loads}
    engines = {"engines": [endpoint.metrics_url(port) for port in ports], "interval": 0.3}
    phases = {
        "generate": line(0.35, 0.35 * slow, 0.01, 0.5, 0.5),
        "update_actor": steady(0.15, 0.005),
    }
    also = partial(_show, ports, 20)
    values = REWARD | {"response_length/mean": steady(500, 8)}
    training.train(recording, values, steps=40, phases=phases, also=also, hardware=engines)


def _straggle(recording: Recording, rank: int, barrier: Any) -> None:
    chance = np.random.default_rng(rank)
    for number in range(140):
        with recording.step(number):
            seconds = (0.05 if rank == 2 and number >= 60 else 0.02) + 0.001 * chance.random()
            with recording.phase("generate"):
                time.sleep(seconds)
            with recording.phase("update_actor"):
                barrier.wait()
                time.sleep(0.01)
                barrier.wait()
            row = {"reward": 0.3 + 0.001 * number + 0.02 * chance.random()}
            recording.log(row if recording.has_calls else row | {"timing_s/generate": seconds})
    recording.finish()


SLOWER = r"slower|longer|grew|rose|more time|take"

SCENARIOS = (
    Scenario(
        "one_engine_gets_all",
        "slow",
        partial(with_engines, loads=((14, 27), (13, 0)), slow=2.0),
        Label(
            right=(
                r"engine|127\.0\.0\.1|requests_running",
                r"imbalance|uneven|other|idle|no request|share|alone|none|27.*\b0\b",
            ),
            place=(r"generate",),
            wrong=(r"more engines|add an? engine|cap the length|length of completions",),
        ),
        "vllm-project/vllm#48808",
    ),
    Scenario(
        "requests_one_at_a_time",
        "slow",
        partial(with_engines, loads=((27, 1),), slow=3.0),
        Label(
            right=(r"requests? (that )?run|running|concurren|in parallel|at (once|a time)", r"27|\b1\b|one|fell|fewer"),
            place=(r"generate",),
            wrong=(r"more engines|add an? engine|cap the length|length of completions",),
        ),
        "awslabs/agentcore-rl-toolkit#141",
    ),
    Scenario(
        "long_prompts_on_one_rank",
        "slow",
        partial(ranks.launch, rank=_straggle, world=3, waits=False),
        Label(
            right=(r"rank 2", r"slow|wait|behind|late|longer|straggl"),
            place=(r"generate",),
            wrong=(r"rank [01] (is|was|made|is slow)|cap the length",),
            plain=(r"timing_s/generate|rank 2", SLOWER),
        ),
        "verl-project/verl#658",
    ),
    Scenario(
        "lag_of_the_driver",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=160,
            phases={"generate": steady(0.02, 0.0008), "update_actor": steady(0.01, 0.0004)},
            driver=line(0.002, 0.024, 0.0005, 0.5, 0.5),
        ),
        Label(
            right=(r"outside of any phase|not in any phase|between phases|driver|outside of phases",),
            place=(SLOWER,),
            wrong=(r"cap the length|(generate|update_actor) (grew|rose|took)",),
            plain=(r"timing_s/step|step", SLOWER),
        ),
        "PrimeIntellect-ai/prime-rl#2609",
    ),
    Scenario(
        "longer_completions",
        "slow",
        partial(
            training.train,
            values=REWARD | {"response_length/mean": line(500, 1200, 12, 0.4, 0.6)},
            steps=160,
            phases={"generate": line(0.02, 0.048, 0.0008, 0.4, 0.6), "update_actor": steady(0.01, 0.0004)},
        ),
        Label(
            right=(r"\bgenerate\b", r"length|tokens"), place=(r"\bgenerate\b",), wrong=(r"update_actor (grew|rose)",)
        ),
        "Tencent-Hunyuan/UniRL#40",
    ),
    Scenario(
        "workers_start_at_each_epoch",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=160,
            phases={
                "start_data_workers": lambda steps, chance: np.where(np.arange(steps) % 25 == 24, 0.25, 0.0005),
                "generate": steady(0.02, 0.0008),
                "update_actor": steady(0.01, 0.0004),
            },
        ),
        Label(
            right=(r"start_data_workers",),
            wrong=(r"(generate|update_actor) (grew|rose)|shared or throttled",),
        ),
        "marin-community/marin#8936",
    ),
)

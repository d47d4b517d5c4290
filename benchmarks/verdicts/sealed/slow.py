"""Sealed, so do not read or run this before the end: slow-downs."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verdicts.labels import Label, Scenario
from benchmarks.verdicts.pieces import endpoint, training
from benchmarks.verdicts.pieces.recording import Recording
from benchmarks.verdicts.pieces.shapes import line, steady

REWARD = {"reward": line(0.3, 0.5, 0.02)}
GENERATE, UPDATE = steady(0.02, 0.0008), steady(0.01, 0.0004)


def _staircase(steps: int, chance: np.random.Generator) -> Any:
    return 0.01 * (1 + np.arange(steps) // (steps // 4)) + chance.normal(0, 0.0004, steps)


def _count_preemptions(port: int, recording: Recording, number: int, chance: Any) -> None:
    count = max(0, number - 20) * 24
    endpoint.ask(port, f"/show/preemptions/{count}")
    if number in (0, 21):
        endpoint.ask(port, f"/show/waiting/{0 if number == 0 else 184}")
        endpoint.ask(port, f"/show/cache/{0.5 if number == 0 else 1.0}")
    if not recording.has_calls:
        recording.log({"vllm/num_preemptions": float(24 if number > 20 else 0)})


def preemptions(recording: Recording) -> None:
    """Send more requests than fit into the cache, from the middle of the training on."""
    port = endpoint.start()
    phases = {"generate": line(0.35, 0.6, 0.01, 0.5, 0.5), "update_actor": steady(0.15, 0.005)}
    engines = {"engines": [endpoint.metrics_url(port)], "interval": 0.3}
    also = partial(_count_preemptions, port)
    training.train(recording, REWARD, steps=42, phases=phases, also=also, hardware=engines)


def _surplus(recording: Recording, number: int, chance: np.random.Generator) -> None:
    tickets = []
    for at in range(24):
        with recording.trajectory(policy_version=number, prompt_id=f"{number}-{at}") as trajectory:
            trajectory.generated(int(chance.integers(80, 120)))
            trajectory.rewarded(float(chance.normal(0.5, 0.1)))
        tickets.append(trajectory.ticket())
    recording.trained(tickets[:8], policy_version=number)
    recording.dropped(tickets[8:], reason="surplus")
    if not recording.has_calls:
        recording.log({"rollout/groups_dropped": 16.0, "rollout/groups_trained": 8.0})


def _sample(has_calls: bool, variables: dict[str, str], tasks: Any, results: Any) -> None:
    recording = Recording(has_calls).join(variables, "rollout")
    while (task := tasks.get()) is not None:
        with recording.trajectory(policy_version=task, prompt_id=task) as trajectory:
            time.sleep(0.02)
            trajectory.generated(100)
            trajectory.rewarded(0.5)
        results.put(trajectory.ticket() if has_calls else None)
    recording.finish()


def sticky_sessions(recording: Recording) -> None:
    """Give all long sessions to the first of two rollout workers."""
    recording.begin()
    context = multiprocessing.get_context("spawn")
    tasks = [context.Queue(), context.Queue()]
    results = context.Queue()
    given = [(recording.has_calls, recording.environment(), one, results) for one in tasks]
    processes = [context.Process(target=_sample, args=one) for one in given]
    for process in processes:
        process.start()
    for number in range(40):
        with recording.step(number):
            with recording.phase("generate"):
                began = time.monotonic()
                for at in range(8):
                    tasks[at % 2 if number < 10 else int(at == 7)].put(number)
                done = [results.get() for _ in range(8)]
                seconds = time.monotonic() - began
            with recording.phase("update_actor"):
                time.sleep(0.02)
                recording.trained([ticket for ticket in done if ticket], policy_version=number)
            sessions = (4.0, 4.0) if number < 10 else (7.0, 1.0)
            row = {"reward": 0.5, "timing_s/generate": seconds}
            row |= {"sessions/worker_0": sessions[0], "sessions/worker_1": sessions[1]}
            recording.log({"reward": 0.5 + 0.001 * number} if recording.has_calls else row)
    for one in tasks:
        one.put(None)
    for process in processes:
        process.join()
    recording.finish()


WRONG = r"cap the length|length of completions|more engines"

SCENARIOS = (
    Scenario(
        "sleep_before_the_sync",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=160,
            phases={
                "generate": GENERATE,
                "update_actor": UPDATE,
                "weight_sync": lambda steps, chance: np.where(
                    np.arange(steps) < 80, 0.004 + chance.normal(0, 0.0002, steps), 0.054
                ),
            },
        ),
        Label(right=(r"weight_sync",), wrong=(r"(generate|update_actor) (grew|rose)", r"\bnetwork\b", WRONG)),
        "marin-community/marin#8936",
    ),
    Scenario(
        "tokens_made_again",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=160,
            phases={
                "generate": GENERATE,
                "backfill_tokens": line(0.001, 0.03, 0.0005, 0.4, 0.4),
                "update_actor": UPDATE,
            },
        ),
        Label(right=(r"backfill_tokens",), wrong=(r"(generate|update_actor) (grew|rose)", WRONG)),
        "PrimeIntellect-ai/prime-rl#2610",
    ),
    Scenario(
        "verifiers_get_stuck_one_by_one",
        "slow",
        partial(
            training.train,
            values=REWARD,
            steps=200,
            phases={"generate": GENERATE, "reward": _staircase, "update_actor": UPDATE},
        ),
        Label(
            right=(r"\breward\b|timing_s/reward", r"grew|slower|longer|rose|more"),
            place=(r"slower|longer",),
            wrong=(WRONG,),
        ),
        "areal-project/AReaL#1426",
    ),
    Scenario(
        "preemptions",
        "slow",
        preemptions,
        Label(right=(r"preempt",), place=(r"generate|wait",), wrong=(r"cap the length|length of completions",)),
        "Tandemn-Labs/tandemn-system#11",
    ),
    Scenario(
        "surplus_dropped",
        "slow",
        partial(training.train, values=REWARD, steps=100, also=_surplus),
        Label(right=(r"dropp|surplus|discard|thrown", r"\d"), wrong=(r"\bstale\b",)),
        "THUDM/slime#2238",
    ),
    Scenario(
        "sticky_sessions",
        "slow",
        sticky_sessions,
        Label(
            right=(r"rollout [01]|worker_[01]", r"share|third|idle|other|imbalance|uneven|fewer|more|half|sessions"),
            place=(r"generate",),
            wrong=(WRONG,),
        ),
        "verl-project/verl#6533",
    ),
)

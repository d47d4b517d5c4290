"""Hangs between processes: workers, engines, data loaders and ranks."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

from benchmarks.verdicts.labels import Label, hang
from benchmarks.verdicts.pieces import endpoint, ranks, workers
from benchmarks.verdicts.pieces.recording import Recording, mark, sleep_forever

ENDPOINT = r"127\.0\.0\.1:\d+"


def parse_expression(trajectory: Any, prompt: int) -> float:
    """Parse an answer; one of them without an end."""
    if prompt == 26:
        mark()
        while True:
            sum(range(1000))
    return workers.answer(trajectory, prompt)


def die_while_loading(trajectory: Any, prompt: int) -> float:
    """Load a sample; the process is killed at one of them."""
    if prompt == 26:
        mark()
        os.kill(os.getpid(), signal.SIGKILL)
    return workers.answer(trajectory, prompt)


def generate_at(port: int, trajectory: Any, prompt: int) -> float:
    """Ask the engine for a completion."""
    endpoint.asked(trajectory, port)
    return workers.answer(trajectory, prompt)


def _sync_and_forget_to_resume(port: int, recording: Recording, number: int) -> None:
    with recording.phase("weight_sync", version=number + 1):
        endpoint.ask(port, "/set/paused")
        endpoint.ask(port, "/update_weights")
        if number < 6:
            endpoint.ask(port, "/set/ready")
        else:
            mark()


def engine_left_paused(recording: Recording) -> None:
    """Pause the engine for each sync of weights, and once do not resume it."""
    port = endpoint.start()
    engines = {"engines": [endpoint.metrics_url(port)], "interval": 2.0}
    update = partial(_sync_and_forget_to_resume, port)
    workers.train(recording, partial(generate_at, port), update=update, hardware=engines)


def _wedge(port: int, recording: Recording, number: int) -> None:
    if number == 6:
        endpoint.ask(port, "/set/wedged")
        mark()


def engine_without_tokens(recording: Recording) -> None:
    """Leave requests running in an engine that makes no more tokens."""
    port = endpoint.start()
    engines = {"engines": [endpoint.metrics_url(port)], "interval": 2.0}
    workers.train(recording, partial(generate_at, port), update=partial(_wedge, port), hardware=engines)


def serve_next_request() -> None:
    """Wait for a request that does not come."""
    sleep_forever()


def _update_rank(recording: Recording, rank: int, barrier: Any) -> None:
    dist = ranks.gloo()
    for number in range(20):
        with recording.step(number):
            with recording.phase("update_actor"):
                time.sleep(0.05)
                ranks.reduce(dist)
            recording.log({"loss": 0.1})
            with recording.phase("update_weights"):
                try:
                    if number == 8 and rank == 0:
                        raise ValueError("rank-local update failed")
                except ValueError:
                    mark()
                    serve_next_request()
                dist.barrier()


SCENARIOS = (
    hang(
        "spinning_verifier",
        "verl-project/verl#5839",
        partial(workers.train, work=parse_expression, role="reward", workers=1, phase="reward", awaits="reward 0"),
        Label(
            right=(r"reward 0", r"parse_expression|\bspin"),
            place=(r"reward 0|parse_expression",),
            plain=(r"parse_expression",),
        ),
    ),
    hang(
        "engine_left_paused",
        "areal-project/AReaL#1181",
        engine_left_paused,
        Label(right=(ENDPOINT, r"paus|wait_until_resumed"), place=(ENDPOINT,)),
    ),
    hang(
        "engine_without_tokens",
        "vllm-project/vllm#17972",
        engine_without_tokens,
        Label(
            right=(ENDPOINT, r"no (new )?token|tokens? (comes?|came)|stuck"),
            place=(ENDPOINT,),
            plain=(ENDPOINT, r"\bgenerate\b|answer"),
        ),
    ),
    hang(
        "rank_fails_alone",
        "sgl-project/sglang#35093",
        partial(ranks.launch, rank=_update_rank),
        Label(
            right=(r"rank 0", r"serve_next_request"),
            place=(r"barrier|update_weights",),
            wrong=(r"rank 1 (sleeps|spins|is stopped|died)",),
        ),
    ),
    hang(
        "loader_worker_killed",
        "pytorch/pytorch#1355",
        partial(workers.train, work=die_while_loading, role="", phase="data"),
        Label(
            right=(r"worker|child|process \d+|loader", r"SIGKILL|killed|died|dead|has ended|is gone"),
            place=(r"\bqueue\b|results?\.get|_take",),
        ),
    ),
)

"""Sealed, so do not read or run this before the end: hangs between processes."""

from __future__ import annotations

import os
import threading
import time
import urllib.error
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.verdicts.labels import Label, hang
from benchmarks.verdicts.pieces import endpoint, ranks, workers
from benchmarks.verdicts.pieces.recording import Recording, mark

ENDPOINT = r"127\.0\.0\.1:\d+"


def ask_now_and_then(ports: tuple[int, int], trajectory: Any, prompt: int) -> float:
    """Ask an engine for a completion; the second engine answers no request of prompt 27 and later."""
    if prompt == 27:
        endpoint.ask(ports[1], "/set/wedged")
        mark()
    endpoint.asked(trajectory, ports[prompt == 27])
    return workers.answer(trajectory, prompt)


def buffer_never_full(recording: Recording) -> None:
    """Wait for the last of four results, whose request gets no answer."""
    workers.train(recording, partial(ask_now_and_then, (endpoint.start(), endpoint.start())))


def _ask_in_background(port: int) -> None:
    threading.Thread(target=endpoint.ask, args=(port,), daemon=True).start()


def _update_while_paused(port: int, recording: Recording, number: int) -> None:
    with recording.phase("weight_sync", version=number + 1, awaits=f"127.0.0.1:{port}"):
        endpoint.ask(port, "/set/paused")
        if number == 7:
            _ask_in_background(port)
            time.sleep(1.0)
            mark()
        endpoint.ask(port, "/update_weights")
        endpoint.ask(port, "/set/ready")


def generate_at(port: int, trajectory: Any, prompt: int) -> float:
    """Ask the engine for a completion."""
    endpoint.asked(trajectory, port)
    return workers.answer(trajectory, prompt)


def update_behind_requests(recording: Recording) -> None:
    """Update weights of a paused engine, which waits for a request that waits for the end of the pause."""
    port = endpoint.start()
    engines = {"engines": [endpoint.metrics_url(port)], "interval": 2.0}
    workers.train(recording, partial(generate_at, port), update=partial(_update_while_paused, port), hardware=engines)


def broadcast(place: Path) -> None:
    """Send weights to a receiver that has to open the pipe."""
    with place.open("wb") as pipe:
        pipe.write(b"weights")


def _broadcast_after_an_error(port: int, recording: Recording, number: int) -> None:
    if number != 7:
        return
    with recording.phase("weight_sync", version=number + 1, awaits=f"127.0.0.1:{port}"):
        endpoint.ask(port, "/set/broken")
        try:
            endpoint.ask(port)
        except urllib.error.HTTPError as error:
            print("ignored:", error.code, error.read().decode(), flush=True)  # the trainer looks at no answer
        place = Path("weights.pipe")
        os.mkfifo(place)
        mark()
        broadcast(place)


def nobody_receives(recording: Recording) -> None:
    """Broadcast weights to an engine that has refused the update with status 500."""
    port = endpoint.start()
    workers.train(recording, workers.answer, update=partial(_broadcast_after_an_error, port))


def _save_on_rank_0(recording: Recording, rank: int, barrier: Any) -> None:
    dist = ranks.gloo()
    for number in range(20):
        with recording.step(number):
            with recording.phase("update_actor"):
                time.sleep(0.05)
                ranks.reduce(dist)
            recording.log({"loss": 0.1})
            if number == 8 and rank == 0:
                mark()
                with recording.phase("save_checkpoint"):
                    save_checkpoint(dist)


def save_checkpoint(dist: Any) -> None:
    """Save; all ranks have to enter."""
    dist.barrier()


def next_batch(number: int, rank: int) -> None:
    """Read a batch; one shard of rank 1 is a pipe that nobody writes to."""
    if number == 8 and rank == 1:
        os.mkfifo("shard-1")
        mark()
        with Path("shard-1").open("rb") as shard:
            shard.read()


def _read_then_reduce(recording: Recording, rank: int, barrier: Any) -> None:
    dist = ranks.gloo()
    for number in range(20):
        with recording.step(number):
            with recording.phase("data"):
                next_batch(number, rank)
            with recording.phase("update_actor"):
                time.sleep(0.05)
                ranks.reduce(dist)
            recording.log({"loss": 0.1})


SCENARIOS = (
    hang(
        "buffer_never_full",
        "NovaSky-AI/SkyRL#1173",
        buffer_never_full,
        Label(
            right=(r"rollout [01]", ENDPOINT),
            place=(r"rollout [01]|results?\b|\bqueue\b",),
            wrong=(r"nobody listens",),
            plain=(ENDPOINT,),
        ),
    ),
    hang(
        "update_behind_requests",
        "sgl-project/sglang#29670",
        update_behind_requests,
        Label(
            right=(ENDPOINT, r"behind|process_weights|paus|wait_until_resumed"),
            place=(ENDPOINT,),
            wrong=(r"nobody listens",),
        ),
    ),
    hang(
        "nobody_receives",
        "huggingface/trl#6913",
        nobody_receives,
        Label(
            right=(r"weights\.pipe|broadcast|weight_sync", r"other end|nobody|no one|reader|500|EngineDead|opens?"),
            place=(r"broadcast|weight_sync|weights\.pipe",),
        ),
    ),
    hang(
        "only_rank_0_saves",
        "alan-turing-institute/autocast#386",
        partial(ranks.launch, rank=_save_on_rank_0),
        Label(
            right=(r"rank 0", r"save_checkpoint|barrier", r"rank 1|different|mismatch|all_?reduce"),
            place=(r"barrier|all_?reduce|save_checkpoint",),
        ),
    ),
    hang(
        "one_shard_without_data",
        "dylanyunlon/Neuron_SP#73",
        partial(ranks.launch, rank=_read_then_reduce),
        Label(right=(r"rank 1", r"next_batch|shard-1"), place=(r"all_?reduce|rank 1|\bdata\b",)),
    ),
)

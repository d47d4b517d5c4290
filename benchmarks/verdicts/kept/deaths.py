"""Deaths: by a signal, for lack of a resource, after a time limit, and by an exception that has a cause elsewhere."""

from __future__ import annotations

import asyncio
import datetime
import mmap
import multiprocessing
import os
import resource
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.verdicts.labels import NETWORK, TRACKER, Label, Scenario
from benchmarks.verdicts.pieces import ranks, shapes, training, workers
from benchmarks.verdicts.pieces.recording import Recording

REWARD = {"reward": shapes.line(0.3, 0.5, 0.03)}


def load_images(trajectory: Any, prompt: int) -> float:
    """Write a batch into shared memory; once, there is too little of it."""
    if prompt == 26:
        with Path("shared").open("wb+") as file:
            file.truncate(mmap.PAGESIZE)
            memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
            file.truncate(0)
            memory[0] = 1
    return workers.answer(trajectory, prompt)


def _convert(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number == 0:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    loop = asyncio.new_event_loop()  # it is never closed
    loop.run_until_complete(asyncio.sleep(0))
    LOOPS.append(loop)


LOOPS: list[asyncio.AbstractEventLoop] = []


class GenerateState:
    """Bounds the rollouts that run at once; the same for training and evaluation."""

    def __init__(self) -> None:
        self.semaphore = asyncio.Semaphore(2)

    async def generate(self) -> None:
        """Generate as soon as there is a place."""
        async with self.semaphore:
            await asyncio.sleep(0.01)

    async def generate_all(self) -> None:
        """Generate four completions."""
        await asyncio.gather(*(self.generate() for _ in range(4)))


def evaluated_in_another_loop(recording: Recording) -> None:
    """Train in one event loop, and evaluate in another one with the same semaphore."""
    recording.begin()
    state, loop = GenerateState(), asyncio.new_event_loop()
    for number in range(60):
        with recording.step(number):
            with recording.phase("generate"):
                loop.run_until_complete(state.generate_all())
            with recording.phase("update_actor"):
                time.sleep(0.02)
            recording.log({"reward": 0.3 + 0.002 * number})
            if number == 40:
                with recording.phase("evaluate"):
                    asyncio.run(state.generate_all())
    recording.finish()


def save_checkpoint() -> None:
    """Write a large checkpoint to a slow disk."""
    time.sleep(22)


def _save_for_long(recording: Recording, rank: int, barrier: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
    for number in range(20):
        with recording.step(number):
            with recording.phase("update_actor"):
                time.sleep(0.05)
                ranks.reduce(dist)
            recording.log({"loss": 0.1})
            if number == 10 and rank == 0:
                with recording.phase("save_checkpoint"):
                    save_checkpoint()
    recording.finish()


def _filter(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number == 118:
        raise ValueError("num_gen_batches=10 >= max_num_gen_batches=10. Generated too many. Please check your data.")


FILTERED = {
    "reward": shapes.bounded(shapes.line(0.2, 0.004, 0.01, 0, 0.7), 0, 1),
    "frac_reward_zero_std": shapes.bounded(shapes.line(0.4, 1.0, 0.03, 0, 0.7), 0, 1),
    "train/num_gen_batches": lambda steps, chance: 1 + (9 * np.arange(steps) // steps),
}


def _serve(has_calls: bool, variables: dict[str, str], port: int) -> None:
    recording = Recording(has_calls).join(variables, "engine")
    with recording.phase("start_server"):
        time.sleep(1)
        socket.create_server(("127.0.0.1", port), reuse_port=False)
    time.sleep(60)


def _free(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(0.5)
        one.connect(("127.0.0.1", port))
        one.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        return bool(one.recv(10))


def port_of_another_run(recording: Recording) -> None:
    """Start an engine at a port that another run has; wait until it is ready, but not without a limit."""
    recording.begin()
    other = socket.create_server(("127.0.0.1", 0))
    port = int(other.getsockname()[1])
    context = multiprocessing.get_context("spawn")
    context.Process(target=_serve, args=(recording.has_calls, recording.environment(), port), daemon=True).start()
    with recording.step(0), recording.phase("wait_for_engine"):
        until = time.monotonic() + 9
        while time.monotonic() < until:
            try:
                if _free(port):
                    break
            except OSError:
                time.sleep(0.5)
        else:
            raise TimeoutError("the engine is not ready after 9 s")
    recording.finish()


def _stop_while_saving(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 20 == 19:
        with recording.phase("save_checkpoint"):
            time.sleep(0.1)
            if number == 79:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(30)


SCENARIOS = (
    Scenario(
        "no_shared_memory",
        "death",
        partial(workers.train, work=load_images, role="", workers=1, phase="data", is_watched=True),
        Label(
            right=(r"SIGBUS|bus error|signal 7\b|signal: bus",),
            place=(r"WorkerDied|worker has died",),
            wrong=(TRACKER, r"SIGKILL", r"rank 0 was killed"),
        ),
        "pytorch/pytorch#5040",
    ),
    Scenario(
        "descriptors_leak",
        "death",
        partial(training.train, values=REWARD, steps=150, also=_convert),
        Label(right=(r"too many open files|EMFILE|errno 24",), place=(r"OSError",)),
        "verl-project/verl#7156",
    ),
    Scenario(
        "evaluated_in_another_loop",
        "death",
        evaluated_in_another_loop,
        Label(right=(r"bound to a different event loop",), place=(r"RuntimeError|evaluate",)),
        "THUDM/slime#2372",
    ),
    Scenario(
        "checkpoint_longer_than_the_limit",
        "death",
        partial(ranks.launch, rank=_save_for_long, waits=False),
        Label(
            right=(r"rank 0", r"save_checkpoint"),
            place=(r"rank 1|time[d -]*out|update_actor",),
            wrong=(NETWORK, TRACKER),
        ),
        "meta-pytorch/torchtune#2093",
    ),
    Scenario(
        "filtered_until_nothing_is_left",
        "death",
        partial(training.train, values=FILTERED, steps=150, also=_filter),
        Label(
            right=(r"frac_reward_zero_std|without a signal|no signal|same reward|equal rewards?",),
            place=(r"Generated too many|ValueError",),
        ),
        "verl-project/verl#953",
    ),
    Scenario(
        "port_of_another_run",
        "death",
        port_of_another_run,
        Label(
            right=(r"engine 0|process \d+|child|worker", r"address already in use|EADDRINUSE|errno 98"),
            place=(r"TimeoutError|not ready|engine",),
            wrong=(TRACKER,),
        ),
        "alibaba/ROLL#87",
    ),
    Scenario(
        "stopped_while_saving",
        "death",
        partial(training.train, values=REWARD, steps=120, also=_stop_while_saving),
        Label(right=(r"SIGTERM", r"save_checkpoint"), place=(r"SIGTERM|cancel",), plain=(r"SIGTERM",)),
        "PrimeIntellect-ai/prime-rl#2664",
    ),
)

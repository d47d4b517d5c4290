"""Healthy programs that are asked about while something slow, but in order, goes on."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.verdicts.pieces.recording import Recording, mark
from benchmarks.verdicts.pieces.workers import answer


def compute(seconds: float) -> None:
    """Keep one core busy, as an update does."""
    until, matrix = time.monotonic() + seconds, np.eye(120)
    while time.monotonic() < until:
        matrix = matrix @ matrix


def _fill(has_calls: bool, variables: dict[str, str], trajectories: Any, count: int) -> None:
    recording = Recording(has_calls).join(variables, "rollout")
    for prompt in range(count):
        with recording.trajectory(policy_version=prompt // 8, prompt_id=prompt) as trajectory:
            trajectory.rewarded(answer(trajectory, prompt))
        trajectories.put(trajectory.ticket() if has_calls else None)
    recording.finish()


def asynchronous(recording: Recording, *, steps: int = 10, slow_step: int = 6, capacity: int = 8) -> None:
    """Take from a bounded queue that two rollout workers fill; one update takes long, and the workers wait."""
    recording.begin()
    context = multiprocessing.get_context("spawn")
    trajectories = context.Queue(capacity)
    given = (recording.has_calls, recording.environment(), trajectories, steps * 4)
    processes = [context.Process(target=_fill, args=given) for _ in range(2)]
    for process in processes:
        process.start()
    for number in range(steps):
        with recording.step(number):
            with recording.phase("get_batch"):
                batch = [trajectories.get() for _ in range(8)]
            with recording.phase("update_actor"):
                if number == slow_step:
                    mark()
                compute(11.0 if number == slow_step else 0.2)
                recording.trained([ticket for ticket in batch if ticket], policy_version=number)
            recording.log({"loss": 0.1 - 0.001 * number, "reward": 0.5 + 0.01 * number})
    for process in processes:
        process.join()
    recording.finish()


def first_checkpoint(recording: Recording) -> None:
    """Save a large checkpoint for the first time after many short steps."""
    recording.begin()
    block = os.urandom(1 << 20)
    for number in range(40):
        with recording.step(number):
            with recording.phase("update_actor"):
                time.sleep(0.05)
            if number == 30:
                mark()
                with recording.phase("save_checkpoint"), Path("checkpoint").open("wb") as file:
                    until = time.monotonic() + 9
                    while time.monotonic() < until:
                        file.seek(0)
                        file.write(block)
                        os.fsync(file.fileno())
            recording.log({"loss": 0.1 - 0.001 * number})
    recording.finish()


def _verify(has_calls: bool, variables: dict[str, str], tasks: Any, results: Any) -> None:
    recording = Recording(has_calls).join(variables, "reward")
    while (task := tasks.get()) is not None:
        with recording.phase("verify"):
            time.sleep(0.02)
        results.put(task)
    recording.finish()


def idle_reward_worker(recording: Recording) -> None:
    """Generate for a long time once, while the reward worker has nothing to do."""
    recording.begin()
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    worker = context.Process(target=_verify, args=(recording.has_calls, recording.environment(), tasks, results))
    worker.start()
    for number in range(12):
        with recording.step(number):
            with recording.phase("generate"):
                if number == 8:
                    mark()
                compute(10.0 if number == 8 else 0.2)
            with recording.phase("reward"):
                tasks.put(number)
                results.get()
            recording.log({"reward": 0.5 + 0.01 * number})
    tasks.put(None)
    worker.join()
    recording.finish()

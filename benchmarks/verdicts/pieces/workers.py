"""A trainer that gives prompts to worker processes, and waits for all of their results in each step."""

from __future__ import annotations

import multiprocessing
import queue
import random
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks.verdicts.pieces.recording import Nothing, Recording

Work: TypeAlias = Callable[[Any, int], float]
"""Works on a prompt, given the trajectory that records it, and returns its reward."""


def answer(trajectory: Any, prompt: int) -> float:
    """Take a short time, as a rollout that is well."""
    time.sleep(0.02 + 0.02 * random.random())
    trajectory.generated(100 + prompt % 7)
    return 0.5 + 0.1 * random.random()


class WorkerDied(RuntimeError):
    """A worker process has ended while the trainer waits for it."""


def _serve(has_calls: bool, variables: dict[str, str], role: str, work: Work, tasks: Any, results: Any) -> None:
    recording = Recording(has_calls)
    if role:
        recording.join(variables, role)
    while (prompt := tasks.get()) is not None:
        if role == "rollout":
            with recording.trajectory(policy_version=prompt // 4, prompt_id=prompt) as trajectory:
                reward = work(trajectory, prompt)
                trajectory.rewarded(reward)
            results.put((reward, trajectory.ticket() if has_calls else None))
        else:
            with recording.phase("verify"):
                results.put((work(Nothing(), prompt), None))
    recording.finish()


def train(
    recording: Recording,
    work: Work,
    *,
    role: str = "rollout",
    workers: int = 2,
    phase: str = "generate",
    steps: int = 12,
    update: Callable[[Recording, int], None] | None = None,
    awaits: str = "",
    is_watched: bool = False,
    **settings: Any,
) -> None:
    """Train with processes that take prompts from one queue, and put rewards into another, 4 in a step.

    Workers without a role do not join the run, as those of a data loader. If `is_watched`, the trainer looks whether
    they live, and raises if not.
    """
    recording.begin(**settings)
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    given = (recording.has_calls, recording.environment(), role, work, tasks, results)
    processes = [context.Process(target=_serve, args=given) for _ in range(workers)]
    for process in processes:
        process.start()
    for number in range(steps):
        with recording.step(number):
            with recording.phase(phase, **({"awaits": awaits} if awaits else {})):
                for prompt in range(4):
                    tasks.put(number * 4 + prompt)
                done = [_take(results, processes if is_watched else []) for _ in range(4)]
            with recording.phase("update_actor"):
                time.sleep(0.05)
                recording.trained([ticket for _, ticket in done if ticket], policy_version=number)
            if update:
                update(recording, number)
            recording.log({"reward": sum(reward for reward, _ in done) / 4, "loss": 0.1 + 0.01 * random.random()})
    for _ in processes:
        tasks.put(None)
    for process in processes:
        process.join()
    recording.finish()


def _take(results: Any, watched: list[Any]) -> Any:
    while watched:
        try:
            return results.get(timeout=1)
        except queue.Empty:
            if not all(process.is_alive() for process in watched):
                raise WorkerDied("a worker has died") from None
    return results.get()

"""Hangs inside of a process: threads, tasks, queues, pools and pipes."""

from __future__ import annotations

import asyncio
import logging
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.verdicts.labels import Label, hang
from benchmarks.verdicts.pieces.recording import Recording, mark
from benchmarks.verdicts.pieces.workers import answer


def _collect_one_pass(recording: Recording, buffer: list[int]) -> None:
    for prompt in range(26):
        with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
            answer(trajectory, prompt)
        buffer.append(prompt)


def collector_ended(recording: Recording) -> None:
    """Wait for a buffer whose collector has read all of the data once."""
    recording.begin()
    buffer: list[int] = []
    collector = threading.Thread(target=_collect_one_pass, args=(recording, buffer), name="collector", daemon=True)
    collector.start()
    for number in range(50):
        with recording.step(number):
            with recording.phase("generate"):
                while len(buffer) < 4:
                    if not collector.is_alive():
                        mark()
                    time.sleep(0.1)
                del buffer[:4]
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})


class SandboxCrash(RuntimeError):
    """The sandbox of a rollout has exited."""


async def _roll_out(recording: Recording, groups: asyncio.Queue[int], prompt: int) -> None:
    with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
        await asyncio.sleep(0.02)
        trajectory.generated(100)
        if prompt == 26:
            mark()
            raise SandboxCrash("sandbox 26 has exited")
    await groups.put(prompt)


async def _train_from_tasks(recording: Recording) -> None:
    groups: asyncio.Queue[int] = asyncio.Queue()
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                for prompt in range(4):
                    asyncio.create_task(_roll_out(recording, groups, number * 4 + prompt))  # noqa: RUF006
                for _ in range(4):
                    await groups.get()
            with recording.phase("update_actor"):
                await asyncio.sleep(0.05)
            recording.log({"loss": 0.1})


def task_raised(recording: Recording) -> None:
    """Wait for a queue to which a task that has raised puts nothing."""
    asyncio.run(_train_from_tasks(recording.begin()))


def _produce_or_log(recording: Recording, groups: queue.Queue[int]) -> None:
    prompt = 0
    while True:
        prompt += 1
        try:
            with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
                answer(trajectory, prompt)
                if prompt > 26:
                    mark()
                    raise ValueError("reward backend failed")
            groups.put(prompt)
        except ValueError:
            logging.exception("generation failed, trying the next prompt")


def failures_retried(recording: Recording) -> None:
    """Wait for a producer whose rollouts all fail, and are logged and tried again."""
    recording.begin()
    groups: queue.Queue[int] = queue.Queue()
    threading.Thread(target=_produce_or_log, args=(recording, groups), name="producer", daemon=True).start()
    for number in range(50):
        with recording.step(number):
            with recording.phase("generate"):
                for _ in range(4):
                    groups.get()
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})


def requeue_stale(groups: queue.Queue[int], prompt: int) -> None:
    """Give a stale group back."""
    groups.put(prompt)


def _produce(recording: Recording, groups: queue.Queue[int]) -> None:
    for prompt in range(1000):
        with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
            answer(trajectory, prompt)
        groups.put(prompt)


def stale_requeued(recording: Recording) -> None:
    """Put a stale group back into a bounded queue that the producer has filled, as its only consumer."""
    recording.begin()
    groups: queue.Queue[int] = queue.Queue(maxsize=4)
    threading.Thread(target=_produce, args=(recording, groups), name="producer", daemon=True).start()
    for number in range(50):
        with recording.step(number):
            with recording.phase("generate"):
                batch = [groups.get() for _ in range(4)]
                if number == 8:
                    time.sleep(1.0)
                    mark()
                    for prompt in batch:
                        requeue_stale(groups, prompt)
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})


def child_pipe_full(recording: Recording) -> None:
    """Wait for the end of a sandbox whose output nobody reads."""
    recording.begin()
    for number in range(20):
        lines = 100_000 if number == 8 else 1
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.05)
            with recording.phase("reward"):
                if number == 8:
                    mark()
                run = [sys.executable, "-c", f"print('test passed\\n' * {lines})"]
                sandbox = subprocess.Popen(run, stdout=subprocess.PIPE)
                sandbox.wait()
            recording.log({"reward": 0.5})


def call_tool(number: int) -> int:
    """Work for a short time."""
    time.sleep(0.02)
    return number


def plan_action(pool: ThreadPoolExecutor, number: int) -> int:
    """Wait for a tool that runs in the pool of its caller."""
    return pool.submit(call_tool, number).result()


def pool_full_of_waiters(recording: Recording) -> None:
    """Run as many actions as the pool has threads, each of which waits for another action of the pool."""
    recording.begin()
    pool = ThreadPoolExecutor(4, thread_name_prefix="actions")
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                if number == 8:
                    mark()
                count = 8 if number == 8 else 2
                for action in [pool.submit(plan_action, pool, at) for at in range(count)]:
                    action.result()
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})


ENDED = r"ended|finished|exited|is gone|no longer|returned|not (running|alive)"

SCENARIOS = (
    hang(
        "collector_ended",
        "NVIDIA-NeMo/RL#2899",
        collector_ended,
        Label(right=(r"collect", ENDED), place=(r"collector_ended|generate|buffer",)),
    ),
    hang(
        "task_raised",
        "thinking-machines-lab/tinker-cookbook#945",
        task_raised,
        Label(right=(r"SandboxCrash|sandbox 26",), place=(r"\bqueue\b|generate|_train_from_tasks",)),
    ),
    hang(
        "failures_retried",
        "THUDM/slime#2399",
        failures_retried,
        Label(right=(r"reward backend failed|ValueError",), place=(r"\bqueue\b|generate|producer",)),
    ),
    hang(
        "stale_requeued",
        "thinking-machines-lab/tinker-cookbook#480",
        stale_requeued,
        Label(
            right=(r"\bput\b|\bfull\b", r"requeue_stale|itself|only consumer|nobody takes|no one takes|nothing takes"),
            place=(r"\bput\b|\bfull\b|requeue_stale",),
            wrong=(r"producer (sleeps|spins|has ended|died)",),
        ),
    ),
    hang(
        "child_pipe_full",
        "Kitware/dive#381",
        child_pipe_full,
        Label(right=(r"\bpipe\b", r"full|writ|read|drain"), place=(r"child|\bwait\b|process \d+|reward",)),
    ),
    hang(
        "pool_full_of_waiters",
        "academy-agents/academy#99",
        pool_full_of_waiters,
        Label(
            right=(r"pool|executor|actions_\d", r"full|all|busy|no free|same|itself|exhaust|taken"),
            place=(r"plan_action|future|generate",),
        ),
    ),
)

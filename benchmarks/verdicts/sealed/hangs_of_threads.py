"""Sealed, so do not read or run this before the end: hangs inside of a process."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor

from benchmarks.verdicts.labels import Label, hang
from benchmarks.verdicts.pieces import endpoint
from benchmarks.verdicts.pieces.recording import Recording, mark, sleep_forever
from benchmarks.verdicts.pieces.workers import answer


def compare_expressions(number: int) -> float:
    """Compare two expressions; one pair without an end."""
    if number == 8:
        mark()
        while True:
            sum(range(1000))
    return 0.5


def verifier_joined(recording: Recording) -> None:
    """Give up waiting for a verifier after its time limit, and then wait for its thread."""
    recording.begin()
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.05)
            with recording.phase("reward"), ThreadPoolExecutor(1, thread_name_prefix="verifier") as pool:
                try:
                    reward = pool.submit(compare_expressions, number).result(timeout=1)
                except TimeoutError:
                    reward = 0.0
            recording.log({"reward": reward})


def _collect_from(recording: Recording, port: int, buffer: list[int]) -> None:
    prompt = 0
    while True:
        prompt += 1
        if prompt == 27:
            endpoint.ask(port, "/set/broken")
            mark()
        try:
            with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
                endpoint.asked(trajectory, port)
                answer(trajectory, prompt)
        except urllib.error.HTTPError:
            if prompt > 40:
                logging.exception("rollout batch failed to buffer prompt groups")
                return
        else:
            buffer.append(prompt)


def collector_gone_after_500(recording: Recording) -> None:
    """Poll a buffer whose collector has ended, since the engine answered with status 500."""
    recording.begin()
    buffer: list[int] = []
    port = endpoint.start()
    collector = threading.Thread(target=_collect_from, args=(recording, port, buffer), name="collector", daemon=True)
    collector.start()
    for number in range(50):
        with recording.step(number):
            with recording.phase("generate"):
                while len(buffer) < 4:
                    time.sleep(0.1)
                del buffer[:4]
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})


def read_slow_store() -> None:
    """Read from a store that does not answer."""
    sleep_forever()


def prepare_runtime() -> None:
    """Prepare, in a thread of the pool."""
    time.sleep(0.01)


def _load(lock: threading.Lock, pool: ThreadPoolExecutor) -> None:
    with lock:
        pool.submit(prepare_runtime).result()


def lock_held_for_the_pool(recording: Recording) -> None:
    """Wait for a lock whose holder waits for a pool, all threads of which read from a slow store."""
    recording.begin()
    lock, pool = threading.Lock(), ThreadPoolExecutor(2, thread_name_prefix="store")
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                if number == 8:
                    for _ in range(2):
                        pool.submit(read_slow_store)
                    threading.Thread(target=_load, args=(lock, pool), name="loader", daemon=True).start()
                    time.sleep(0.5)
                    mark()
                with lock:
                    time.sleep(0.05)
            recording.log({"loss": 0.1})


def _generate(groups: queue.Queue[int]) -> None:
    for prompt in range(10_000):
        time.sleep(0.01)
        groups.put(prompt)


def _score(recording: Recording, groups: queue.Queue[int], scored: queue.Queue[int]) -> None:
    for prompt in range(26):
        groups.get()
        with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
            answer(trajectory, prompt)
        scored.put(prompt)
    raise KeyError("no reward function is called 'accuracy'")


def scorer_gone(recording: Recording) -> None:
    """Wait for scores, whose thread has raised, while the generating thread waits to put into a full queue."""
    recording.begin()
    groups: queue.Queue[int] = queue.Queue(maxsize=8)
    scored: queue.Queue[int] = queue.Queue()
    scorer = threading.Thread(target=_score, args=(recording, groups, scored), name="scorer", daemon=True)
    threading.Thread(target=_generate, args=(groups,), name="generator", daemon=True).start()
    scorer.start()
    for number in range(50):
        with recording.step(number):
            with recording.phase("generate"):
                if number == 6:
                    mark()
                for _ in range(4):
                    scored.get()
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})


_CACHE = threading.Lock()


def cache_lookup() -> int:
    """Look something up, under a lock."""
    with _CACHE:
        time.sleep(0.2)
        return 1


def _look_up_often() -> None:
    while True:
        cache_lookup()


def fork_with_a_lock(recording: Recording) -> None:
    """Wait for a forked child, which waits for a lock that a thread of its parent held at the fork."""
    recording.begin()
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.05)
            if number == 8:
                threading.Thread(target=_look_up_often, name="cache", daemon=True).start()
                time.sleep(0.1)
                with recording.phase("reward"):
                    child = os.fork()
                    if not child:
                        cache_lookup()
                        os._exit(0)
                    mark()
                    os.waitpid(child, 0)
            recording.log({"reward": 0.5})


class PromptTooLongError(ValueError):
    """A prompt does not fit into the engine."""


def _collect_within_limit(recording: Recording, groups: queue.Queue[int], cleared: threading.Event) -> None:
    prompt = 0
    while True:
        for _ in range(4):
            prompt += 1
            try:
                with recording.trajectory(policy_version=0, prompt_id=prompt) as trajectory:
                    answer(trajectory, prompt)
                    if prompt == 27:
                        mark()
                        raise PromptTooLongError("prompt 27 has 9,000 tokens, max_model_len is 8,192")
                groups.put(prompt)
            except PromptTooLongError:
                logging.exception("prompt 27 failed")
        cleared.wait()
        cleared.clear()


def group_fails_for_good(recording: Recording) -> None:
    """Wait for the last group of a step, which has failed, while the collector waits for the end of the step."""
    recording.begin()
    groups: queue.Queue[int] = queue.Queue()
    cleared = threading.Event()
    given = (recording, groups, cleared)
    threading.Thread(target=_collect_within_limit, args=given, name="collector", daemon=True).start()
    for number in range(50):
        with recording.step(number):
            with recording.phase("generate"):
                for _ in range(4):
                    groups.get()
            with recording.phase("update_actor"):
                time.sleep(0.05)
            recording.log({"loss": 0.1})
            cleared.set()


ENDED = r"ended|finished|exited|is gone|no longer|raised|not (running|alive)|died|failed"

SCENARIOS = (
    hang(
        "verifier_joined",
        "huggingface/smolagents#2465",
        verifier_joined,
        Label(right=(r"compare_expressions",), place=(r"\bjoin\b|thread|reward|shutdown",)),
    ),
    hang(
        "collector_gone_after_500",
        "NVIDIA-NeMo/RL#3488",
        collector_gone_after_500,
        Label(
            right=(r"\b500\b|HTTPError",),
            place=(r"collect|generate|buffer",),
            wrong=(r"nobody listens",),
        ),
    ),
    hang(
        "lock_held_for_the_pool",
        "OpenHands/software-agent-sdk#4513",
        lock_held_for_the_pool,
        Label(right=(r"read_slow_store",), place=(r"\block\b|_load|loader",)),
    ),
    hang(
        "scorer_gone",
        "huggingface/trl#5320",
        scorer_gone,
        Label(
            right=(r"scorer|_score|KeyError", ENDED + r"|KeyError"),
            place=(r"\bput\b|\bfull\b|\bqueue\b|generate",),
            wrong=(r"generator (sleeps|spins|has ended|died)",),
        ),
    ),
    hang(
        "fork_with_a_lock",
        "pytorch/pytorch#25158",
        fork_with_a_lock,
        Label(right=(r"cache_lookup", r"child|process \d+|worker|fork"), place=(r"child|waitpid|\block\b|reward",)),
    ),
    hang(
        "group_fails_for_good",
        "NVIDIA-NeMo/RL#3938",
        group_fails_for_good,
        Label(
            right=(r"PromptTooLong|max_model_len|prompt 27\b.*fail|fail.*prompt 27\b",),
            place=(r"collector|\bqueue\b|generate|cleared",),
        ),
    ),
)

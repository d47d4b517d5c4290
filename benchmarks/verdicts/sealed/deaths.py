"""Sealed, so do not read or run this before the end: deaths."""

from __future__ import annotations

import errno
import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.verdicts.labels import TRACKER, Label, Scenario
from benchmarks.verdicts.pieces import ranks, training, workers
from benchmarks.verdicts.pieces.shapes import steady

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.verdicts.pieces.recording import Recording

REWARD = {"reward": steady(0.5, 0.03)}
_LEAK: list[bytearray] = []


def crash_in_second_load(recording: Recording) -> None:
    """Crash in native code while the reference model is loaded."""
    recording.begin()
    with recording.step(0):
        with recording.phase("generate"):
            time.sleep(0.5)
        recording.log({"reward": 0.5})
    with recording.step(1), recording.phase("load_model"):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGSEGV)


def _fill_disk(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 20 == 19:
        with recording.phase("save_checkpoint"):
            time.sleep(0.05)
            if number == 99:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoint-99/model.safetensors")


def _time_out(recording: Recording, number: int, chance: np.random.Generator) -> None:
    with recording.phase("reward"):
        time.sleep(0.002)
        if number == 90:
            raise TimeoutError("operation timed out in math_verify.grader")


def keep_images(trajectory: Any, prompt: int) -> float:
    """Keep the preprocessed images of every prompt, until the kernel ends the process."""
    _LEAK.append(bytearray(os.urandom(1 << 20) * 12))
    if prompt >= 120:
        os.kill(os.getpid(), signal.SIGKILL)
    return workers.answer(trajectory, prompt)


def _kill_rank_1(recording: Recording, rank: int, barrier: Any) -> None:
    for number in range(60):
        with recording.step(number):
            with recording.phase("compute_ref_log_prob"):
                time.sleep(0.03)
                if number == 40 and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            with recording.phase("update_actor"):
                if number == 40:
                    time.sleep(2.0)
                    raise ConnectionError("Connection closed by peer [127.0.0.1]:40123")
                barrier.wait()
            recording.log({"reward": 0.5})
    recording.finish()


SCENARIOS = (
    Scenario(
        "crash_while_loading",
        "death",
        crash_in_second_load,
        Label(
            right=(r"SIGSEGV|segmentation", r"load_model"),
            place=(r"SIGSEGV|segmentation|crashed",),
            plain=(r"SIGSEGV|segmentation",),
        ),
        "verl-project/verl#1329",
    ),
    Scenario(
        "disk_full",
        "death",
        partial(training.train, values=REWARD, steps=150, also=_fill_disk),
        Label(right=(r"No space left|disk (is )?full|ENOSPC",), place=(r"OSError|save_checkpoint",)),
        "Agent-RL/ReCall#61",
    ),
    Scenario(
        "verifier_time_out",
        "death",
        partial(training.train, values=REWARD, steps=150, also=_time_out),
        Label(
            right=(r"TimeoutError|timed out", r"reward|math_verify"),
            place=(r"TimeoutError|failed",),
            plain=(r"TimeoutError|timed out",),
        ),
        "hkust-nlp/simpleRL-reason#95",
    ),
    Scenario(
        "images_kept_until_the_kill",
        "death",
        partial(workers.train, work=keep_images, workers=1, steps=40, is_watched=True),
        Label(
            right=(r"rollout 0", r"SIGKILL|killed", r"memory|GiB|MiB|grew"),
            place=(r"rollout 0|SIGKILL|killed|WorkerDied",),
            wrong=(TRACKER, r"rank 0 was killed"),
            plain=(r"WorkerDied|worker has died",),
        ),
        "alibaba/ROLL#80",
    ),
    Scenario(
        "second_rank_died_first",
        "death",
        partial(ranks.launch, rank=_kill_rank_1, waits=False),
        Label(
            right=(r"rank 1", r"SIGKILL|killed"),
            place=(r"ConnectionError|Connection closed",),
            wrong=(r"rank 0 was killed|rank 0.{0,30}(died|failed) first",),
        ),
        "PeterGriffinJin/Search-R1#45",
    ),
)

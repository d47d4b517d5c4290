"""Deaths: of a worker, of a server, and of the trainer."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.verdicts.labels import CIRCLE, TRACKER, Label, Scenario, hang
from benchmarks.verdicts.pieces import endpoint, shapes, training, workers
from benchmarks.verdicts.pieces.recording import Recording, mark

if TYPE_CHECKING:
    import numpy as np


def killed_while_scoring(trajectory: Any, prompt: int) -> float:
    """Score an answer; the process is killed at one of them."""
    if prompt == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return workers.answer(trajectory, prompt)


class EngineDeadError(RuntimeError):
    """The engine of a rollout worker has failed."""


def engine_dies(trajectory: Any, prompt: int) -> float:
    """Generate; the engine fails at one prompt, and with it the worker."""
    if prompt == 26:
        mark()
        raise EngineDeadError("EngineCore encountered a fatal error")
    return workers.answer(trajectory, prompt)


def _sample(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number == 118:
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")


def _clean_up(recording: Recording, number: int, chance: np.random.Generator) -> None:
    if number % 20 == 19:
        place = Path(f"checkpoint-{number}")
        place.mkdir()
        with recording.phase("save_checkpoint"):
            if number == 79:
                (place / ".nfs0001").write_text("held open by the uploader")
            place.rmdir()


def _serve_api(has_calls: bool, variables: dict[str, str], role: str, after: float, port: int) -> None:
    recording = Recording(has_calls).join(variables, role)
    with recording.phase("serve"):
        if role == "api":
            time.sleep(after)
            endpoint.ask(port, "/set/broken")
            os._exit(1)
        time.sleep(60)


def api_server_exits(recording: Recording) -> None:
    """Ask a server whose API process exits with status 1 while its engine goes on."""
    recording.begin()
    port = endpoint.start()
    context = multiprocessing.get_context("spawn")
    for role in ("engine", "api"):
        given = (recording.has_calls, recording.environment(), role, 4.0, port)
        context.Process(target=_serve_api, args=given, daemon=True).start()
    for number in range(600):
        with recording.step(number):
            with recording.phase("generate"):
                endpoint.ask(port)
                time.sleep(0.05)
            recording.log({"reward": 0.5})
    recording.finish()


ANOMALOUS = {
    "reward": shapes.steady(0.5, 0.03),
    "grad_norm": shapes.at(116, math.nan, shapes.steady(0.2, 0.03)),
    "loss": shapes.steady(0.01, 0.01),
}

SCENARIOS = (
    Scenario(
        "reward_worker_killed",
        "death",
        partial(workers.train, work=killed_while_scoring, role="reward", workers=1, phase="reward", is_watched=True),
        Label(
            right=(r"reward 0", r"SIGKILL|killed"),
            place=(r"WorkerDied|worker has died",),
            wrong=(TRACKER, r"rank 0 was killed"),
            plain=(r"WorkerDied|worker has died",),
        ),
        "OpenRLHF/OpenRLHF#1139",
    ),
    hang(
        "engine_dies_in_generation",
        "NovaSky-AI/SkyRL#1691",
        partial(workers.train, work=engine_dies),
        Label(
            right=(r"rollout [01]", r"EngineDead|\bdead\b|failed|died|EngineCore"),
            place=(r"\bqueue\b|generate",),
            plain=(r"EngineDead|EngineCore|((worker|child|process \d+).{0,60}(ended|died|dead|exit|failed|gone))",),
        ),
    ),
    Scenario(
        "gradient_before_the_crash",
        "death",
        partial(training.train, values=ANOMALOUS, steps=150, also=_sample),
        Label(right=(r"grad_norm", r"nan|not finite|not a number"), place=(r"probability tensor|RuntimeError",)),
        "MakazhanAlpamys/Soup#342",
    ),
    Scenario(
        "cleanup_of_checkpoints",
        "death",
        partial(training.train, values={"reward": shapes.steady(0.5, 0.03)}, steps=150, also=_clean_up),
        Label(right=(r"Directory not empty",), place=(r"OSError|save_checkpoint",)),
        "PrimeIntellect-ai/prime-rl#1763",
    ),
    Scenario(
        "api_server_exits",
        "death",
        api_server_exits,
        Label(
            right=(r"api 0", r"exit|failed|code 1|status 1"),
            place=(r"HTTP Error 500|HTTPError|generate",),
            wrong=(TRACKER, CIRCLE, r"engine 0 (was killed|died|failed|exited)"),
            plain=(r"HTTP Error 500|HTTPError|Internal Server Error",),
        ),
        "vllm-project/vllm#32116",
    ),
)

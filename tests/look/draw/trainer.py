"""A training of two ranks that do nothing but wait, with the metrics of GRPO: `python -m tests.look.draw.trainer KIND`.

Its parent is to the ranks what torchrun is: where one dies, the other one gets SIGTERM.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
import urllib.request
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, NamedTuple

import otel_rl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess
    from multiprocessing.synchronize import Barrier

RANKS = 2
_SECONDS = {"generate": 0.12, "reward": 0.03, "ref_log_prob": 0.03, "update_actor": 0.08, "sync_weights": 0.02}
_TOGETHER = "update_actor"
"""The phase in which ranks wait for each other."""


class Kind(NamedTuple):
    """The fate of a run; a step is `None` if that never happens."""

    steps: int = 100  # number of steps
    stays: bool = False  # whether it goes on after the last one, until its parent gets SIGTERM
    begins_at: int = 0  # its first step
    hangs_at: int | None = None  # the verifier of rank 1 answers no more
    killed_at: int | None = None  # rank 1 is killed
    longer_from: int | None = None  # completions are longer
    diverges_from: int | None = None  # KL and gradient norm explode
    hacked_from: int | None = None  # completions please the format reward instead of the verifier


KINDS = {
    "finished": Kind(),
    "hung": Kind(hangs_at=70),
    "slow": Kind(longer_from=60, stays=True),
    "killed": Kind(killed_at=80),
    "resumed": Kind(killed_at=60),
    "resumed again": Kind(begins_at=50),
    "diverged": Kind(diverges_from=60, stays=True),
    "hacked": Kind(hacked_from=40),
}
"""The kinds of runs; the second start of a run has a kind of its own."""


def main(name: str, directory: str) -> None:
    """Run the ranks of a training."""
    kind = KINDS[name]
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(RANKS)
    verifier = socket.create_server(("127.0.0.1", 0))  # nobody accepts: it never answers
    port = verifier.getsockname()[1]
    called = (kind, name.split(maxsplit=1)[0], directory, port, barrier)
    ranks = [context.Process(target=_rank, args=(rank, *called)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    signal.signal(signal.SIGTERM, lambda *_: _kill(ranks))
    wait([rank.sentinel for rank in ranks])
    while any(rank.exitcode is None for rank in ranks) and not any(rank.exitcode for rank in ranks):
        time.sleep(0.05)
    time.sleep(0.5)
    for rank in ranks:
        if rank.exitcode is None:
            rank.terminate()
        rank.join()


def _kill(ranks: Sequence[BaseProcess]) -> None:
    for rank in ranks:
        rank.kill()


def _rank(rank: int, kind: Kind, name: str, directory: str, verifier: int, barrier: Barrier) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    os.environ |= {key: str(value) for key, value in numbers.items()} | {"TORCHELASTIC_RUN_ID": name}
    steps = kind.begins_at + kind.steps
    run = otel_rl.init(
        project="grpo-gsm8k", name=name, id=name, dir=directory, content=True, stalled_after=20, quiet=True
    )
    run.params({"model": "qwen-0.5b", "lr": 1e-6, "kl_coef": 0.04, "max_steps": steps})
    dice = random.Random(rank)
    step = kind.begins_at
    while step < steps or kind.stays:
        with run.step(step):
            for phase, seconds in _SECONDS.items():
                with run.phase(phase):
                    _work(rank, kind, step, phase, seconds * dice.gauss(1, 0.03), verifier, barrier)
            run.log(_values(kind, step, dice))
            if step % 5 == 0:
                _write_completions(run, kind, step, dice)
            if step % 20 == 19 and rank == 0:
                run.event("rl.checkpoint.saved", path=f"checkpoints/{step}")
        step += 1
    run.finish(60)


def _work(rank: int, kind: Kind, step: int, phase: str, seconds: float, verifier: int, barrier: Barrier) -> None:
    """Take the time of a phase, or what becomes of it."""
    if phase == "generate" and kind.longer_from is not None and step >= kind.longer_from:
        seconds *= 2.2
    if phase == "reward" and rank == 1 and step == kind.hangs_at:
        urllib.request.urlopen(f"http://127.0.0.1:{verifier}/verify").read()
    if phase == _TOGETHER:
        barrier.wait()
        if rank == 1 and step == kind.killed_at:
            time.sleep(seconds / 2)
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)


def _values(kind: Kind, step: int, dice: random.Random) -> dict[str, float]:
    """Return what a GRPO trainer logs."""
    learned = 1 - math.exp(-step / 25)
    correct, form = 0.3 + 0.5 * learned, 0.7 + 0.25 * learned
    length = 512.0
    if kind.longer_from is not None and step >= kind.longer_from:
        length = 1180.0
    if kind.hacked_from is not None and step >= kind.hacked_from:
        late = min(1.0, (step - kind.hacked_from) / 20)
        correct, form = correct - 0.55 * late, form + 1.2 * late
        length -= 300 * late
    values = {
        "loss": dice.gauss(0.02, 0.01),
        "kl": 0.02 + 0.05 * learned + abs(dice.gauss(0, 0.004)),
        "entropy": 0.6 - 0.3 * learned + dice.gauss(0, 0.01),
        "grad_norm": abs(dice.gauss(0.5, 0.08)),
    }
    if kind.diverges_from is not None and step >= kind.diverges_from:
        late = step - kind.diverges_from
        values |= {"kl": values["kl"] + 0.02 * 1.35 ** min(late, 30), "grad_norm": 0.5 * 1.3 ** min(late, 30)}
        correct, form = correct * math.exp(-late / 12), form * math.exp(-late / 12)
        if late >= 25:
            values |= {"loss": math.nan, "grad_norm": math.nan}
    return values | {
        "reward": 0.7 * correct + 0.3 * form + dice.gauss(0, 0.015),
        "rewards/correctness": correct + dice.gauss(0, 0.015),
        "rewards/format": form + dice.gauss(0, 0.01),
        "completions/mean_length": length + dice.gauss(0, 12),
    }


def _write_completions(run: otel_rl.Run, kind: Kind, step: int, dice: random.Random) -> None:
    """Record eight completions of two prompts."""
    is_hacked = kind.hacked_from is not None and step >= kind.hacked_from + 10
    texts, rewards = [], []
    for prompt in range(2):
        for _ in range(4):
            is_right = dice.random() < (0.1 if is_hacked else 0.5)
            number = 3 * prompt + 4 if is_right else dice.randrange(20)
            reason = "Let us verify step by step. " * 3 if is_hacked else f"We add {prompt} and {2 * prompt + 4}. "
            texts.append(f"<think>{reason}</think> \\boxed{{{number}}}")
            rewards.append(1.2 + 0.2 * dice.random() if is_hacked else float(is_right) + 0.1 * dice.random())
    prompts = [f"What is {prompt} + {2 * prompt + 4}?" for prompt in range(2)]
    run.completions(prompts, [texts[:4], texts[4:]], rewards=rewards)


if __name__ == "__main__":
    main(*sys.argv[1:])

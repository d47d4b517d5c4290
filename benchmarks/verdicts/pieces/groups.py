"""A trainer that rolls out the group of a step in threads, each trajectory with its parts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.verdicts.pieces.recording import Recording


class Timed:
    """A trajectory that also measures its parts, for the form without calls.

    Attributes:
        trajectory: Records it.
        seconds: The time of each part, by its name.
        tokens: The number of tokens that were generated.
    """

    def __init__(self, trajectory: Any) -> None:
        self.trajectory = trajectory
        self.seconds: dict[str, float] = {}
        self.tokens = 0

    @contextmanager
    def part(self, kind: str, name: str) -> Iterator[None]:
        """Record a part, and its time."""
        began = time.monotonic()
        with self.trajectory.part(kind, name=name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began

    def generated(self, tokens: int) -> None:
        """Record the number of tokens."""
        self.tokens = tokens
        self.trajectory.generated(tokens)


Work: TypeAlias = Callable[[Timed, int, int], float]
"""Makes a trajectory, given the step and the place in the group, and returns its reward."""


class RolloutFailed(RuntimeError):
    """The environment of a trajectory has failed, and the trajectory is left out."""


def train(recording: Recording, work: Work, *, steps: int = 60, size: int = 4) -> None:
    """Roll out a group in each step, and log as frameworks do; the plain form logs the slowest time of each part."""
    recording.begin(config={"num_generations": size, "max_steps": steps})
    with ThreadPoolExecutor(size, thread_name_prefix="rollout") as pool:
        for number in range(steps):
            with recording.step(number):
                began = time.monotonic()
                with recording.phase("generate"):
                    group = list(pool.map(partial(_roll_out, recording, work, number), range(size)))
                generated = time.monotonic() - began
                whole = [one for one in group if one[1] is not None]
                with recording.phase("update_actor"):
                    time.sleep(0.015)
                    tickets = [timed.trajectory.ticket() for timed, _ in whole]
                    recording.trained([ticket for ticket in tickets if recording.has_calls], policy_version=number)
                row = _row(whole, number)
                if not recording.has_calls:
                    names = {name for timed, _ in whole for name in timed.seconds}
                    row |= {
                        f"timing_s/{name}": max(timed.seconds.get(name, 0.0) for timed, _ in whole) for name in names
                    }
                    row |= {"timing_s/generate": generated, "timing_s/step": time.monotonic() - began}
                recording.log(row)
    recording.finish()


def _roll_out(recording: Recording, work: Work, number: int, at: int) -> tuple[Timed, float | None]:
    prompt = f"{number}"
    try:
        with recording.trajectory(policy_version=number, prompt_id=prompt, group_id=prompt) as trajectory:
            timed = Timed(trajectory)
            reward = work(timed, number, at)
            trajectory.rewarded(reward)
    except RolloutFailed:
        return timed, None
    return timed, reward


def _row(whole: list[tuple[Timed, float | None]], number: int) -> dict[str, Any]:
    rewards = [reward for _, reward in whole if reward is not None]
    lengths = [timed.tokens for timed, _ in whole]
    return {
        "reward": sum(rewards) / len(rewards),
        "response_length/mean": sum(lengths) / len(lengths),
        "response_length/max": max(lengths),
        "loss": 0.05 + 0.01 * random.random(),
        "grad_norm": 0.6 + 0.1 * random.random(),
    }


def reward(number: int, chance: float = 0.05) -> float:
    """Return a reward that rises slowly."""
    return 0.3 + 0.003 * number + chance * random.random()

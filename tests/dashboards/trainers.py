"""Trainers to be watched: `python trainers.py NAME` plays one until the file `stop` is there; with `still`, it waits.

They log the names of real frameworks, sleep where those would work, and go wrong as their names say, after `CALM`
seconds in which all is well.
"""

from __future__ import annotations

import csv
import math
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from typing import TYPE_CHECKING

import numpy as np
import yaml

import otel_rl
from otel_rl.recorder.trainer.current import recorder_of
from tests.recorder.devices.gpus import GIB, Allocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

DATA = Path(__file__).parents[1] / "data"
CALM = 28.0
STEP = 0.4
HARDWARE_S = 4.7
"""Seconds between two measurements: so long do values stand still. No multiple of `STEP`, to meet every part."""
_PARTS = (
    *(("environment", "browser", 0.002), ("model", "", 0.01), ("tool", "search", 0.006), ("model", "", 0.01)),
    *(("tool", "python", 0.003), ("verifier", "math", 0.004)),
)
"""The parts of a trajectory: kind, name and seconds."""
HEALTHY = {"reward": 0.5, "kl": 0.02, "entropy": 1.2, "grad_norm": 0.5, "loss": -0.1, "completions/mean_length": 120.0}


def learning(n: int) -> dict[str, float]:
    """Return what TRL logs in step `n` of a training that goes well."""
    done = 1 - math.exp(-n / 40)
    return {
        "reward": 0.2 + 0.6 * done,
        "reward_std": 0.3 - 0.1 * done,
        "rewards/accuracy/mean": 0.1 + 0.6 * done,
        "rewards/format/mean": 0.5 + 0.5 * done,
        "frac_reward_zero_std": 0.1 + 0.2 * done,
        "kl": 0.005 + 0.02 * done,
        "entropy": 1.6 - 0.5 * done,
        "grad_norm": 0.5 + 0.1 * done,
        "loss": 0.02 - 0.01 * done,
        "learning_rate": 1e-6 * max(0.0, 1 - n / 1000),
        "clip_ratio/low_mean": 0.01 + 0.01 * done,
        "clip_ratio/high_mean": 0.02 + 0.02 * done,
        "completions/mean_length": 80 + 60 * done,
        "completions/max_length": 200 + 50 * done,
        "completions/clipped_ratio": 0.05,
        "sampling/sampling_logp_difference/mean": 0.002,
        "sampling/importance_sampling_ratio/mean": 1.0,
        "sampling/importance_sampling_ratio/max": 1.5,
        "num_tokens": 4000.0 * n,
        "eval_reward": 0.15 + 0.55 * done,
    }


def healthy(seconds: float) -> dict[str, float]:
    """Return the values of a step that is well: a reward that is always the same number would not be."""
    return {**HEALTHY, "reward": HEALTHY["reward"] + math.sin(seconds) / 100}


def main(name: str) -> None:
    """Play a trainer."""
    PLAYS[name](name)


def begin(name: str, **options: object) -> otel_rl.Run:
    """Begin to record, with the hardware measured every few seconds."""
    given = {"exporters": ["jsonl"], "dialect": "trl", "quiet": True, "hardware": {"interval": HARDWARE_S}}
    return otel_rl.init(project="proof", name=f"{name} run", id=name, **{**given, **options})  # type: ignore[arg-type]


def steps(run: otel_rl.Run) -> Iterator[tuple[int, float, AbstractContextManager[object]]]:
    """Yield number, seconds since the beginning and context of each step, at a fixed pace, until asked to stop.

    Between two steps, the run stands still for as long as the file `still` is there.
    """
    began = time.time()
    for n in count():
        while Path("still").exists() and not Path("stop").exists():
            time.sleep(0.1)
        if Path("stop").exists():
            return
        time.sleep(max(0.0, began + n * STEP - time.time()))
        yield n, time.time() - began, run.step(n)


def names(framework: str) -> list[str]:
    """Return the names that a framework logs, of the lists that the tests of the dialects use."""
    path = DATA / "names" / f"{framework}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    listed = [line for line in lines if line and not line.startswith("#")]
    examples = yaml.safe_load((DATA / "rosetta.yaml").read_text())["examples"]
    with (DATA / "metrics.csv").open() as file:
        found = [row["metric_name_pattern"] for row in csv.DictReader(file) if framework in row["seed"].lower()]
    for placeholder, example in examples.items():
        found = [name.replace(placeholder, example) for name in found]
    return [*dict.fromkeys([*listed, *(name for name in found if not set("{}<>* ") & set(name))])]


def plays_names_of(framework: str, phases: Mapping[str, float]) -> Callable[[str], None]:
    """Return what logs every name of a framework in every step; numbers rise slowly, as if it learned."""

    def play(name: str) -> None:
        run = begin(name, dialect=framework, flops={"parameters": 7e9, "peak": 1e15})
        told = names(framework)
        for n, _, step in steps(run):
            with step:
                for phase, seconds in phases.items():
                    with run.phase(phase):
                        time.sleep(seconds)
                if n % 10 == 9:
                    with run.phase("testing"), run.phase("save_checkpoint"):
                        pass
                run.log(dict.fromkeys(told, 0.4 + n / 10_000))
                run.log({"something/of_ours": n % 7})
        run.finish()

    return play


def plays_ranks(rank_is_slow: bool = False, rank_dies: bool = False) -> Callable[[str], None]:
    """Return what plays one of two ranks."""

    def play(name: str) -> None:
        run = begin(name)
        last = os.environ.get("RANK") == "1"
        for _, seconds, step in steps(run):
            with step:
                with run.phase("generate"):
                    time.sleep(0.15)
                with run.phase("train_step"):
                    time.sleep(0.2 if last and rank_is_slow else 0.1)
                run.log(healthy(seconds))
                if last and rank_dies and seconds > CALM:
                    os.kill(os.getpid(), signal.SIGKILL)
        run.finish()

    return play


def stall(name: str) -> None:
    """Step as it should, and then hang in a phase, while it waits for a server that nobody has started."""
    run = begin(name, stalled_after=HARDWARE_S)
    for _, seconds, step in steps(run):
        with step, run.phase("generate"):
            time.sleep(0.1)
            run.log(healthy(seconds))
            if seconds > CALM:
                with run.phase("ask", **{"server.address": "127.0.0.1", "server.port": 9}):
                    while not Path("stop").exists():
                        time.sleep(0.2)
    run.finish()


def diverge(name: str) -> None:
    """Learn, and then fall apart: every number that is watched, the engine's weights, and the time of a step."""
    run = begin(name)
    worse = {"reward": -0.5, "kl": 8.0, "entropy": 0.01, "grad_norm": 90.0, "loss": float("nan")}
    worse |= {"completions/clipped_ratio": 0.9, "completions/mean_length": 250.0, "clip_ratio/high_mean": 0.4}
    for n, seconds, step in steps(run):
        broken = seconds > CALM
        with step:
            with run.phase("generate"):
                time.sleep(1.0 if broken else 0.05)
            told = {metric: value + math.sin(n * 1.7) * abs(value) / 20 for metric, value in learning(n).items()}
            run.log({**told, **(worse if broken else {})})
            run.weights(n, {"w": np.full(4, n, "float32")})
            run.weights(n, {"w": np.full(4, n - broken, "float32")}, side="engine")
    run.finish()


def play_gpu(name: str) -> None:
    """Work on a device that fills up; NVML is a stand-in, which reports an XID error and heat."""
    run = begin(name, hardware={"interval": HARDWARE_S, "pcie": True})
    device = Filling()
    recorder_of(run).devices.found = device
    for _, seconds, step in steps(run):
        device.fails = int(seconds > CALM)
        with step:
            with run.phase("generate"):
                device.hold(20)
                time.sleep(0.15)
            with run.phase("train_step") as phase:
                with phase.onload():
                    device.hold(39.7 if seconds > CALM else 30)
                with phase.execute():
                    time.sleep(0.1)
                with phase.offload():
                    device.hold(10)
            run.log(healthy(seconds))
    run.finish()


class Filling(Allocator):
    """A device that the stand-in for NVML also reports, and whose allocator fails on demand."""

    fails = 0

    def describe(self, index: int) -> tuple[str, str, int]:
        return f"GPU-{index:08d}-aaaa", "imaginary", 80 * GIB

    def memory(self, *, used: bool = False) -> list[object]:  # type: ignore[override]
        import msgspec

        return [msgspec.structs.replace(m, retries=self.fails, ooms=self.fails) for m in super().memory(used=used)]


def play_asynchronous(name: str) -> None:
    """Roll out and train in one process, with trajectories that have parts and grow old."""
    run = begin(name, hardware={"interval": HARDWARE_S, "engines": [os.environ["ENGINE"]]})
    for n, seconds, step in steps(run):
        version = max(0, n - (9 if seconds > CALM else 1))
        tickets = []
        for each in range(4):
            with run.trajectory(policy_version=version) as trajectory:
                for kind, called, length in _PARTS:
                    with trajectory.part(kind, name=called):
                        time.sleep(length)
                trajectory.generated(100 + 10 * each)
                trajectory.rewarded(each / 4)
            tickets.append(trajectory.ticket())
        with step:
            time.sleep(0.2)
            run.queue("experience", depth=n % 5, waited=0.01)
            run.trained(tickets[:3], policy_version=n)
            run.dropped(tickets[3:], reason="stale", policy_version=n)
            run.log({**healthy(seconds), "tokens/step": 360})
    run.finish()


def play_telemetry(name: str) -> None:
    """Have an exporter that does not answer, too many names, a value that is none, and one that comes late."""
    run = begin(name, exporters=["jsonl", "otlp_logs"], rows={"limit": 12})
    for n, seconds, step in steps(run):
        with step:
            time.sleep(0.1)
            run.log(healthy(seconds))
            if seconds > CALM:
                run.log({"loss": "no number", f"id/{n}": 1.0})
                run.log({"reward": 0.25}, step=n - 20)
    run.finish(timeout=1)


PLAYS: dict[str, Callable[[str], None]] = {
    "trl": plays_names_of("trl", {"_generate": 0.2, "_calculate_rewards": 0.02, "optimizer_step": 0.05}),
    "verl": plays_names_of("verl", {"gen": 0.2, "reward": 0.02, "update_actor": 0.05, "update_weights": 0.01}),
    "roll": plays_names_of("roll", {"generate": 0.2, "compute_rewards": 0.02, "train_step": 0.05, "refit": 0.01}),
    "ranks": plays_ranks(),
    "slow": plays_ranks(rank_is_slow=True),
    "lost": plays_ranks(rank_dies=True),
    "stalled": stall,
    "diverged": diverge,
    "gpu": play_gpu,
    "asynchronous": play_asynchronous,
    "telemetry": play_telemetry,
    "orphan": plays_ranks(),
}

if __name__ == "__main__":
    main(sys.argv[1])

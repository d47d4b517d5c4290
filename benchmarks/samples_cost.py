"""The cost of a step with 100 scalars and ten arrays of 512 observations, for the trainer and for the machine."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import torch

from benchmarks import peers
from benchmarks.agent_cost import drain
from benchmarks.measuring import TIMER, Contestant, compared, interleave
from benchmarks.recording import directory, recording
from benchmarks.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import otel_rl

_ARRAYS, _SAMPLES = 10, 512
_STEPS, _ROUNDS = 1000, 3
_ALONE = "the 100 scalars alone"


def measure() -> list[Table]:
    """Return the trainer's share of a step, and the CPU that the agent and the peers need for it."""
    return [_trainer(), _machine()]


def _steps(kind: Callable[[Any], object]) -> Iterator[dict[str, object]]:
    """Return 100 scalars and ten arrays of a kind, without end."""
    dice = np.random.default_rng(0)
    arrays = [{f"sample_{n}": kind(dice.normal(size=_SAMPLES)) for n in range(_ARRAYS)} for _ in range(16)]
    return ({**scalars, **some} for scalars, some in zip(peers.batches(), itertools.cycle(arrays), strict=False))


def _trainer() -> Table:
    kinds = {
        "NumPy float64": lambda x: x,
        "NumPy float32": lambda x: x.astype(np.float32),
        "torch float32": lambda x: torch.tensor(x, dtype=torch.float32),
        "torch float32 with a gradient": lambda x: torch.tensor(x, dtype=torch.float32, requires_grad=True),
        "list": lambda x: x.tolist(),
    }
    with recording() as run, run.step(0):
        scalars = peers.batches()
        contestants = [Contestant(_ALONE, lambda: run.log(next(scalars)))]
        for label, kind in kinds.items():
            steps = _steps(kind)
            contestants.append(Contestant(label, lambda steps=steps: run.log(next(steps))))
        contestants.append(TIMER)
        found = interleave(contestants, rounds=10, calls=100)
    note = "Target: p50 ≤ 60 µs with arrays. The samples are durable on return; the agent makes statistics of them."
    title = f"run.log of 100 scalars and {_ARRAYS} arrays of {_SAMPLES}"
    return compared(title, found, _ALONE, note, short="scalars alone")


def _machine() -> Table:
    contestants: dict[str, Callable[[], float]] = {
        "the agent, into TensorBoard": lambda: _agent("tensorboard", samples=False),
        "the agent, into TensorBoard, with the samples": lambda: _agent("tensorboard", samples=True),
        "the agent, into W&B offline": lambda: _agent("wandb", samples=False),
        "TensorBoard's own writer": _tensorboard_alone,
        "wandb offline": _wandb_alone,
    }
    found: dict[str, list[float]] = {label: [] for label in contestants}
    for _ in range(_ROUNDS):
        for label, run in contestants.items():
            found[label].append(run())
    first = found["TensorBoard's own writer"]
    rows: list[list[Cell]] = [
        [
            label,
            1e3 * statistics.median(seconds) / _STEPS,
            statistics.median(mine / theirs for mine, theirs in zip(seconds, first, strict=True)),
        ]
        for label, seconds in found.items()
    ]
    note = (
        f"{_STEPS:,} steps of 100 scalars, medians of {_ROUNDS} rounds, without start and end. The peers' CPU is the "
        "trainer's own and that of the processes that they start; the agent's is another process's."
    )
    return Table("CPU of a step", ["who", "CPU ms", "÷ TensorBoard's writer"], rows, note)


def _agent(exporter: str, *, samples: bool) -> float:
    """Return the CPU seconds of an agent for the steps."""

    def record(run: otel_rl.Run, steps: int) -> None:
        logged = _steps(lambda x: x) if samples else peers.batches()
        for number in range(steps):
            run.log(next(logged), step=number)

    return drain((exporter,), _STEPS + 1, record).cpu_s - drain((exporter,), 1, record).cpu_s


def _tensorboard_alone() -> float:
    with directory() as place, peers.tensorboard_event(place) as peer:
        return _cpu_of(peer)


def _wandb_alone() -> float:
    with directory() as place, peers.wandb_offline(place) as peer:
        peer.call()
        service = [psutil.Process(), *psutil.Process().children(recursive=True)][-1]
        before = _used(service)
        own = _cpu_of(peer)
        return own + _used(service) - before


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _cpu_of(peer: Contestant) -> float:
    before = time.process_time()
    for _ in range(_STEPS):
        peer.call()
    peer.settle()
    return time.process_time() - before

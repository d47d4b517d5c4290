"""The cost of telemetry for a training step on a GPU: the same step with and without it, in turns."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Contestant, compared, interleave
from benchmarks.recording import recording
from benchmarks.tables import Cell, Table

if TYPE_CHECKING:
    import otel_rl

_PAIRS = 200


def measure() -> list[Table]:
    """Return the ratio of step times, and the cost of a phase and of a log; nothing where there is no CUDA device."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return [Table("GPU", ["no CUDA device here", ""], [], "Not measured.")]
    step = _Step(torch)
    with recording() as run:
        device = torch.cuda.get_device_name()
        return [_steps(step, run, device), _calls(step, run, device)]


class _Step:
    """A forward and backward pass of some milliseconds, in five phases."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda()
        self._data = torch.randn(4096, 4096, device="cuda")
        self.number = 0

    def __call__(self, run: otel_rl.Run | None) -> float:
        """Do a step; return its seconds, the device's work included."""
        self.torch.cuda.synchronize()
        began = time.perf_counter()
        if run is None:
            self._work()
        else:
            self.number += 1
            with run.step(self.number):
                for name in ("generate", "reward", "old_log_prob", "advantage"):
                    with run.phase(name):
                        pass
                with run.phase("update_actor"):
                    loss = self._work()
                run.log({f"actor/metric_{n}": loss for n in range(20)})
        self.torch.cuda.synchronize()
        return time.perf_counter() - began

    def _work(self) -> Any:
        loss = self._model(self._data).square().mean()
        loss.backward()
        self._model.zero_grad()
        return loss.detach()


def _steps(step: _Step, run: otel_rl.Run, device: str) -> Table:
    for _ in range(20):
        step(None), step(run)
    without, with_ = zip(*((step(None), step(run)) for _ in range(_PAIRS)), strict=True)
    medians = statistics.median(without) * 1e3, statistics.median(with_) * 1e3
    found: list[Cell] = [*medians, medians[1] / medians[0]]
    note = "Target: ≤ 1.002. Each step ends with a synchronise of the benchmark's own."
    return Table(f"A training step on {device}", ["steps", "off ms", "on ms", "on ÷ off"], [[_PAIRS, *found]], note)


def _calls(step: _Step, run: otel_rl.Run, device: str) -> Table:
    torch = step.torch
    values = {f"metric_{n}": torch.zeros((), device="cuda") for n in range(20)}

    def phase() -> None:
        with run.phase("x"):
            pass

    calls = [
        Contestant("run.phase", phase, torch.cuda.synchronize),
        Contestant("run.log of 20 device scalars", lambda: run.log(values), torch.cuda.synchronize),
        Contestant("torch.cuda.memory_stats", torch.cuda.memory_stats),
        Contestant("torch.cuda.mem_get_info", torch.cuda.mem_get_info),
        Contestant("item() of each of the 20", lambda: [value.item() for value in values.values()]),
    ]
    with run.step(step.number + 1):
        found = interleave(calls, rounds=7, calls=100)
    return compared(f"Calls on {device}", found, "run.phase", "", short="phase")

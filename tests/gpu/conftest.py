"""Tests that need a CUDA device; they are skipped where there is none, in CI too, since no CI has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import otel_rl
from tests.recorder.trainer.reading import begin


def has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if not has_cuda():
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


class Trainer:
    """A small training loop on the GPU, with phases that take some milliseconds."""

    def __init__(self) -> None:
        import torch

        torch.manual_seed(0)
        self.torch: Any = torch
        self.model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.data = torch.randn(512, 2048, device="cuda")

    def generate(self) -> Any:
        with self.torch.no_grad():
            out = self.data
            for _ in range(8):
                out = self.model(out)
            return out

    def update(self) -> Any:
        loss = self.model(self.data).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def step(self, run: otel_rl.Run | None, number: int) -> None:
        if run is None:
            self.generate()
            self.update()
            return
        with run.step(number):
            with run.phase("generate", tokens=512):
                rewards = self.generate()[:, 0]
            with run.phase("train_step") as phase:
                with phase.onload():
                    pass
                with phase.execute():
                    loss = self.update()
                with phase.offload():
                    pass
            run.log({"actor/pg_loss": loss, "actor/grad_norm": loss * 2, "critic/rewards": rewards})


@pytest.fixture
def trainer() -> Trainer:
    """A trainer that is warm: its kernels are loaded, its memory is allocated."""
    trainer = Trainer()
    for number in range(3):
        trainer.step(None, number)
    trainer.torch.cuda.synchronize()
    return trainer


@pytest.fixture
def run(tmp_path: Path, trainer: Trainer) -> otel_rl.Run:
    """A run that has seen the device and has taken its buffers."""
    run = begin(tmp_path, memory={"history": 10_000})
    trainer.step(run, 0)
    trainer.step(run, 1)
    trainer.torch.cuda.synchronize()
    return run

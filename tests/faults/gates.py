"""Runs with an exporter that takes nothing until a file says so, so that their outbox has a backlog."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from otel_rl.recorder.agent import loop
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.records import Finished
from tests.faults import hostile
from tests.faults.sane import T0, losses, started, steps

STEPS = 40
GATES = """
import pathlib
from otel_rl.export import identity
class Gated:
    def __init__(self, run): self.run = pathlib.Path(run.directory)
    def export(self, items):
        if not (self.run / "open").exists():
            self.refuse(items)
        with (self.run / "gated.txt").open("a") as file:
            file.writelines(f"{item.step}\\n" for item in items if type(item).__name__ == "Row")
        with (self.run / "all.txt").open("a") as file:
            file.writelines(repr(identity(item)) + "\\n" for item in items)
    def refuse(self, items):
        raise ConnectionError("closed")
    def shutdown(self): pass
class Half(Gated):
    def refuse(self, items):
        if any(getattr(item, "step", 0) == 20 for item in items):
            (self.run / "half").touch()
            raise ConnectionError("closed")
"""
"""Exporters that take nothing, or only the first half, until there is a file `open`."""


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of `GATES`; the agent has a batch for each step."""
    monkeypatch.setattr(loop, "_READ_AT_ONCE", 3)
    (tmp_path / "gates.py").write_text(GATES)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("gates")


@pytest.fixture
def waiting(tmp_path: Path, gates: Any) -> Path:
    """Return a run whose outbox has 40 batches that JSONL has and another exporter does not."""
    journal = [started(), *steps(*range(STEPS)), Finished(T0 + 10**9)]
    run = hostile.recorded(tmp_path, {"rank0.attempt1": journal}, ["jsonl", gates.Gated], idle_timeout=0.5)
    assert run_agent(run.dir, once=True) is False
    assert losses(run.dir) == [*range(STEPS)]
    wait_for_idle(run.dir, 30)
    return run.dir


def wait_for_idle(run_dir: Path, seconds: float) -> None:
    """Let the agents of a run end only after so many seconds without progress."""
    directory = directories.at(run_dir)
    manifest = msgspec.structs.replace(directories.read_manifest(directory), idle_timeout=seconds)
    directory.manifest.write_bytes(msgspec.json.encode(manifest))


def gated(run_dir: Path) -> list[int]:
    path = run_dir / "gated.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []

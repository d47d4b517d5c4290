"""A run directory with exporters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivering import Agents
from tests.exporters.every import OFFLINE
from tests.faults.gates import gates, waiting

__all__ = ["gates", "waiting"]


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """Return what starts exporters on a run directory; they are stopped afterwards."""
    found = Agents(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no tracker need a server, nor write outside of the run directory."""
    for variable, value in OFFLINE.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))

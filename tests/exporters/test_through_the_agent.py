"""Runs through the agent into every tracker at once."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.agent_start import read_status
from tests.exporters.every import EVERY_EXPORTER, OFFLINE, needs_every_package
from tests.exporters.trackers import DOUBLE, JSONL, WANDB, Tracker, bits, cases
from tests.processes import rows_of

STEPS, MANY = 20, 10_000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with samples, tables and parameters, which every exporter was given."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in OFFLINE.items():
            patch.setenv(variable, value)
        run = otel_rl.init(
            dir=tmp_path_factory.mktemp("runs"),
            exporters=EVERY_EXPORTER,
            config={"actor": {"lr": 1e-6}},
            content=True,
            quiet=True,
        )
        for n in range(STEPS):
            with run.step(n):
                run.log({"loss": 1 / (n + 1), "reward": [0.0, float(n)], "tokens@sum": [10, 20]})
        run.table("completions", {"prompt": ["1 + 1"], "reward": [0.5]})
        assert run.finish(120), (run.dir / "agent.log").read_text()
    return run.dir


@needs_every_package
def test_the_rows_hold_the_statistics(run_dir: Path) -> None:
    """Samples are reduced, a tag is taken off, every step is there."""
    rows: list[Any] = rows_of(run_dir)

    assert [(row["step"], row["values"]["reward/mean"]) for row in rows] == [(n, n / 2) for n in range(STEPS)]
    assert [row["values"]["tokens"] for row in rows] == [30.0] * STEPS


@needs_every_package
@pytest.mark.parametrize("name", EVERY_EXPORTER)
def test_every_exporter_accepts_everything(run_dir: Path, name: str) -> None:
    """All items were delivered, at the first try, and none was refused."""
    status = read_status(directories.at(run_dir))

    assert status.delivered[name] == max(status.delivered.values())
    assert (name in status.failures, name in status.waiting, status.lost) == (False, False, {})


@pytest.fixture(scope="module")
def logged() -> list[dict[str, float]]:
    """Values of 10,000 steps with every kind of float among them."""
    numbers = random.Random(0)
    rows: list[dict[str, float]] = []
    for n in range(MANY):
        loss = {0: math.nan, 1: math.inf, 2: -math.inf}.get(n % 101, numbers.gauss(0, 1))
        rows.append({"actor/pg_loss": loss, "tiny": 5e-324 * n, "reward": numbers.random(), "tokens": n * 2**40})
    return rows


@pytest.fixture(scope="module")
def many(logged: list[dict[str, float]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with so many steps, as fast as they can be logged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        exporters = ["jsonl", {"tensorboard": {"precision": "double"}}, "wandb"]
        run = otel_rl.init(dir=tmp_path_factory.mktemp("runs"), exporters=exporters, hardware=False, quiet=True)
        for n, values in enumerate(logged):
            run.log(values, step=n)
        assert run.finish(120)
    return run.dir


@pytest.mark.parametrize("tracker", cases(JSONL, DOUBLE, WANDB))
def test_ten_thousand_steps(tracker: Tracker, many: Path, logged: list[dict[str, float]]) -> None:
    """Every step is there once, in order and bit for bit."""
    expected = {name: [(n, bits(tracker.value(row[name]))) for n, row in enumerate(logged)] for name in logged[0]}

    assert tracker.points(many) == expected

"""A run with samples, tables and parameters, through the agent into every tracker at once."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import otel_rl
from otel_rl.setup import directory as directories
from otel_rl.setup.agent_start import read_status
from tests.exporters import wandb_file
from tests.exporters.every import EVERY_EXPORTER, OFFLINE, needs_every_package
from tests.processes import rows_of

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 20
pytestmark = [needs_every_package, pytest.mark.slow]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the finished run."""
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


def expected(run_dir: Path, name: str) -> list[tuple[int, float]]:
    """Return what the rows hold of a metric."""
    rows: list[Any] = rows_of(run_dir)
    return [(row["step"], row["values"][name]) for row in rows]


NAMES = ["loss", "reward/mean", "reward/std", "reward/count", "tokens"]


def test_the_rows_hold_the_statistics(run_dir: Path) -> None:
    """Samples are reduced, a tag is taken off, every step is there."""
    assert expected(run_dir, "reward/mean") == [(n, n / 2) for n in range(STEPS)]
    assert expected(run_dir, "tokens") == [(n, 30.0) for n in range(STEPS)]


@pytest.mark.parametrize("name", NAMES)
def test_mlflow(run_dir: Path, name: str) -> None:
    """The same points in the database, and the table among the artifacts."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{run_dir}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    (found,) = client.search_runs([experiment.experiment_id])

    assert [(p.step, p.value) for p in client.get_metric_history(found.info.run_id, name)] == expected(run_dir, name)
    assert found.data.params == {"actor.lr": "1e-06"}


@pytest.mark.parametrize("name", NAMES)
def test_trackio(run_dir: Path, name: str) -> None:
    """The same points in its database."""
    (path,) = (run_dir / "trackio").glob("*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    points = [(step, json.loads(metrics)[name]) for step, metrics in rows if name in json.loads(metrics)]

    assert points == expected(run_dir, name)


@pytest.mark.parametrize("name", NAMES)
def test_wandb(run_dir: Path, name: str) -> None:
    """The same points in its file."""
    (path,) = wandb_file.files(str(run_dir))
    history = [{key: json.loads(value) for key, value in row.items()} for row in wandb_file.history(path)]

    assert [(row["step"], row[name]) for row in history if name in row] == expected(run_dir, name)


@pytest.mark.parametrize("name", EVERY_EXPORTER)
def test_every_exporter_accepts_everything(run_dir: Path, name: str) -> None:
    """All items were delivered, at the first try, and none was refused."""
    status = read_status(directories.at(run_dir))

    assert status.delivered[name] == max(status.delivered.values())
    assert (name in status.failures, name in status.waiting, status.lost) == (False, False, {})


def test_sidecar(run_dir: Path) -> None:
    """The table is a file of strict JSON in the run directory."""
    (path,) = (run_dir / "tables").rglob("*.json")

    assert json.loads(path.read_text()) == {"columns": ["prompt", "reward"], "data": [["1 + 1", 0.5]]}

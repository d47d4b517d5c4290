"""How a run ended, as each tracker shows it."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.delivery.plugins import find_exporter
from otel_rl.export import Ended, Item, Params, Row, RunInfo
from tests.collector import wait_for
from tests.exporters import hparams, swanlab_file, wandb_file
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = [pytest.mark.slow, *map(needs, ("mlflow", "swanlab", "trackio", "tensorboard", "wandb"))]
PARAMS = Params(10**18 - 1, {"lr": 1.0})
ROW, AGAIN = Row(1, 10**18, {"loss": 1.0}), Row(1, 2 * 10**18, {"loss": 2.0}, attempt=1)
FAILED = Ended(10**18 + 1, 0, "failed", "rank0: ValueError: boom", 1)
KILLED = Ended(10**18 + 1, 0, "crashed", "rank0: SIGTERM", 143)
FINISHED = Ended(10**18 + 1, 0, "finished")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("WANDB_MODE", "SWANLAB_MODE"):
        monkeypatch.setenv(variable, "offline")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


def deliver(place: Path, name: str, items: Sequence[Item]) -> None:
    """Deliver items as an agent does that lives as long as this takes."""
    for directory in ("outbox", "cursors"):
        (place / "local" / directory).mkdir(parents=True, exist_ok=True)
    outbox = Outbox(place / "local" / "outbox", 1 << 30)
    outbox.append(items, b"\xc0")
    info = RunInfo("i", project(place), "n", str(place))
    exporter = ExporterThread(name, find_exporter(name), {}, info, outbox, place / "local" / "cursors")
    exporter.close_when_done()
    exporter.start()
    wait_for(lambda: not exporter.is_alive(), "the exporter does not come to its end", 100)
    outbox.close()
    assert exporter.last_error == ""


def project(place: Path) -> str:
    """Return a project of its own for each place: trackio keeps the first directory of a process for all runs."""
    return f"ended{crc32(str(place).encode())}"


def wandb(place: Path) -> Any:
    """Return the exit code of the last run."""
    wandb_file.wait_until_written(str(place))
    (end,) = (one.exit for one in wandb_file.records(wandb_file.files(str(place))[-1]) if one.HasField("exit"))
    return end.exit_code


def mlflow(place: Path) -> Any:
    """Return the status."""
    with sqlite3.connect(place / "mlflow.db") as database:
        return database.execute("SELECT status FROM runs").fetchone()[0]


def swanlab(place: Path) -> Any:
    """Return the state of the last run."""
    return [one.finish.state for one in swanlab_file.records(place) if one.WhichOneof("record_type") == "finish"][-1]


def jsonl(place: Path) -> Any:
    """Return the outcome, if there is one."""
    path = place / "run.end.json"
    return json.loads(path.read_text())["outcome"] if path.exists() else None


def trackio(place: Path) -> Any:
    """Return the last value of the outcome."""
    from trackio.sqlite_storage import SQLiteStorage

    path = SQLiteStorage.get_project_db_path(project(place))
    with sqlite3.connect(path) as database:
        rows = [json.loads(text) for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY id")]
    return next(row["rl/outcome"] for row in reversed(rows) if "rl/outcome" in row)


def tensorboard(place: Path) -> Any:
    """Return the status of the session in the HParams dashboard."""
    (group,) = hparams.sessions(str(place / "tensorboard"))
    return group.sessions[0].status


@pytest.mark.parametrize(
    ("read", "finished", "failed", "killed"),
    [
        (jsonl, "finished", "failed", "crashed"),
        (wandb, 0, 1, 143),
        (mlflow, "FINISHED", "FAILED", "KILLED"),
        (swanlab, 1, 2, 2),
        (trackio, "finished", "failed", "crashed"),
        (tensorboard, 1, 2, 2),
    ],
)
def test_outcome(tmp_path: Path, read: Any, finished: Any, failed: Any, killed: Any) -> None:
    """Each outcome is what the tracker has for it."""
    shown = []
    for n, end in enumerate((FINISHED, FAILED, KILLED)):
        place = tmp_path / str(n)
        deliver(place, read.__name__, [PARAMS, ROW, end])
        shown.append(read(place))

    assert shown == [finished, failed, killed]


@pytest.mark.parametrize("read", [wandb, mlflow, jsonl])
def test_a_late_item_does_not_undo_the_end(tmp_path: Path, read: Any) -> None:
    """An agent that comes later and has only parameters to deliver leaves the run as failed."""
    deliver(tmp_path, read.__name__, [ROW, FAILED])
    before = read(tmp_path)
    deliver(tmp_path, read.__name__, [Params(1, {"lr": 1.0})])

    assert read(tmp_path) == before


@pytest.mark.parametrize(("read", "expected"), [(wandb, 0), (mlflow, "FINISHED"), (jsonl, None)])
def test_the_next_attempt_runs_again(tmp_path: Path, read: Any, expected: Any) -> None:
    """The run goes on after its failure: the failure is not its state any more."""
    deliver(tmp_path, read.__name__, [ROW, FAILED])
    deliver(tmp_path, read.__name__, [AGAIN])

    assert read(tmp_path) == expected

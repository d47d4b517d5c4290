"""How a run ended, as each tracker shows it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from otel_rl.export import Ended, Params, Row
from tests.delivering import Agents
from tests.exporters import hparams, swanlab_file, wandb_file
from tests.exporters.every import needs_packages
from tests.trackers import trackio_database

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("offline"),
    needs_packages("mlflow", "swanlab", "trackio", "tensorboard", "wandb"),
]
PARAMS = Params(10**18 - 1, {"lr": 1.0})
ROW, AGAIN = Row(1, 10**18, {"loss": 1.0}), Row(1, 2 * 10**18, {"loss": 2.0}, attempt=1)
FAILED = Ended(10**18 + 1, 0, "failed", "rank0: ValueError: boom", 1)
CANCELLED = Ended(10**18 + 1, 0, "cancelled", "rank0: SIGTERM", 143)
CRASHED = Ended(10**18 + 1, 0, "crashed", "rank0: SIGSEGV", 139)
LOST = Ended(10**18 + 1, 0, "lost", "rank0: lost", 255)
FINISHED = Ended(10**18 + 1, 0, "finished")


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
    with sqlite3.connect(trackio_database(place)) as database:
        rows = [json.loads(text) for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY id")]
    return next(row["rl/outcome"] for row in reversed(rows) if "rl/outcome" in row)


def tensorboard(place: Path) -> Any:
    """Return the status of the session in the HParams dashboard."""
    (group,) = hparams.sessions(str(place / "tensorboard"))
    return group.sessions[0].status


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (jsonl, ["finished", "failed", "cancelled", "crashed", "lost"]),
        (wandb, [0, 1, 255, 139, 254]),  # W&B's own client ends with 255 at Ctrl-C: the run shows as killed
        (mlflow, ["FINISHED", "FAILED", "KILLED", "FAILED", "FAILED"]),
        (swanlab, [1, 2, 3, 2, 2]),
        (trackio, ["finished", "failed", "cancelled", "crashed", "lost"]),
        (tensorboard, [1, 2, 2, 2, 2]),
    ],
)
def test_outcome(tmp_path: Path, read: Any, expected: list[Any]) -> None:
    """Each outcome is what the tracker has for it."""
    shown = []
    for n, end in enumerate((FINISHED, FAILED, CANCELLED, CRASHED, LOST)):
        agents = Agents(tmp_path / str(n))
        assert agents.deliver(read.__name__, PARAMS, ROW, end).last_error == ""
        shown.append(read(agents.place))

    assert shown == expected


@pytest.mark.parametrize("read", [wandb, mlflow, jsonl])
def test_a_late_item_does_not_undo_the_end(agents: Agents, read: Any) -> None:
    """An agent that comes later and has only parameters to deliver leaves the run as failed."""
    agents.deliver(read.__name__, ROW, FAILED)
    before = read(agents.place)
    agents.deliver(read.__name__, Params(1, {"lr": 1.0}))

    assert read(agents.place) == before


@pytest.mark.parametrize(("read", "expected"), [(wandb, 0), (mlflow, "FINISHED"), (jsonl, None)])
def test_the_next_attempt_runs_again(agents: Agents, read: Any, expected: Any) -> None:
    """The run goes on after its failure: the failure is not its state any more."""
    agents.deliver(read.__name__, ROW, FAILED)
    agents.deliver(read.__name__, AGAIN)

    assert read(agents.place) == expected

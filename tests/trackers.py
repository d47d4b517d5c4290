"""The curves that a tracker has of a run, read back from its files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.delivering import project_of
from tests.exporters import swanlab_file, wandb_file

Points = list[tuple[int, float]]
"""Step and value, in the tracker's order."""


def _jsonl(place: Path, name: str) -> Points:
    rows = [json.loads(line) for line in (place / "rows.jsonl").read_text().splitlines()]
    return [(row["step"], row["values"][name]) for row in rows if name in row["values"]]


def _tensorboard(place: Path, name: str) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = place / "tensorboard" if (place / "tensorboard").is_dir() else place
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def _wandb(place: Path, name: str) -> Points:
    wandb_file.wait_until_written(str(place), last_alone=True)
    lines = [line for file in wandb_file.files(str(place)) for line in wandb_file.history(file)]
    return [(int(line["step"]), float(line[name])) for line in lines if name in line]


def _mlflow(place: Path, name: str) -> Points:
    with closing(sqlite3.connect(place / "mlflow.db")) as database:
        return database.execute("SELECT step, value FROM metrics WHERE key = ? ORDER BY step", (name,)).fetchall()


def _swanlab(place: Path, name: str) -> Points:
    scalars = [one.scalar for one in swanlab_file.records(place) if one.WhichOneof("record_type") == "scalar"]
    return [(scalar.step, scalar.value.number) for scalar in scalars if scalar.key == name]


def _trackio(place: Path, name: str) -> Points:
    with closing(sqlite3.connect(trackio_database(place))) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    return [(step, json.loads(text)[name]) for step, text in rows if name in json.loads(text)]


def trackio_database(place: Path) -> Path:
    """Return the database of a run of `delivering.Agents`: trackio reads its variable once in a process."""
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_project_db_path(project_of(place))


CURVES: dict[str, Callable[[Path, str], Points]] = {
    "jsonl": _jsonl,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "swanlab": _swanlab,
    "trackio": _trackio,
}
"""How a curve of a run directory is read, by tracker."""

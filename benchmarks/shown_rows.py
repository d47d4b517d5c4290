"""Which rows each tracker shows of a run whose processes were killed, and what is wrong with them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Found = tuple[int, int, int, dict[str, float]]
    """Attempt, step, part and values of a row."""


class Attempt(NamedTuple):
    """The steps of an attempt whose `log` had returned when the trainer was killed; none if `last` is below `first`.

    The attempt may have recorded one more: the trainer was killed before it noted the step.
    """

    number: int
    first: int
    last: int


class Shown(NamedTuple):
    """The rows that a tracker shows, as attempt, step and part, and the number of rows that are not whole."""

    rows: list[tuple[int, int, int]]
    torn: int


class Verdict(NamedTuple):
    """How many rows had to be there, and what is wrong."""

    expected: int
    lost: int
    doubled: int
    torn: int


def verdict(tracker: str, run_dir: Path, attempts: list[Attempt]) -> Verdict:
    """Judge what a tracker shows of a run."""
    read, judge = READERS[tracker]
    return judge(attempts, read(run_dir))


def _of_all(attempts: list[Attempt], shown: Shown) -> Verdict:
    """Judge a tracker that shows every attempt: each step of each is there once."""
    expected = {(one.number, step) for one in attempts for step in range(one.first, one.last + 1)}
    found = Counter(shown.rows)
    there = {(attempt, step) for attempt, step, _ in found}
    return Verdict(len(expected), len(expected - there), sum(n - 1 for n in found.values()), shown.torn)


def _of_the_last(attempts: list[Attempt], shown: Shown) -> Verdict:
    """Judge a tracker that forgets steps of earlier attempts from the first step of the next attempt on."""
    valid: dict[int, int] = {}
    for one in attempts:
        valid = {step: number for step, number in valid.items() if step < one.first}
        valid |= dict.fromkeys(range(one.first, one.last + 1), one.number)
    found = Counter(step for _, step, _ in shown.rows)
    there = {(step, attempt) for attempt, step, _ in shown.rows}
    return Verdict(len(valid), len(valid.items() - there), sum(n - 1 for n in found.values()), shown.torn)


def _of_any(attempts: list[Attempt], shown: Shown) -> Verdict:
    """Judge a tracker that may keep the first attempt of a step alone: each step is there, no row of it twice."""
    expected = {step for one in attempts for step in range(one.first, one.last + 1)}
    found = Counter(shown.rows)
    there = {step for _, step, _ in found}
    return Verdict(len(expected), len(expected - there), sum(n - 1 for n in found.values()), shown.torn)


def _shown(rows: Iterable[Found], torn: int = 0) -> Shown:
    """Check the values of rows; some rows have none of the trainer's."""
    found = []
    for attempt, step, part, values in rows:
        mine = values.keys() & {"loss", "who"}
        if mine and (values.get("loss"), values.get("who")) != (step / 8, attempt):
            torn += 1
        if mine:
            found.append((attempt, step, part))
    return Shown(found, torn)


def _points(points: Iterable[tuple[str, int, int | float, float]]) -> Iterator[Found]:
    """Yield the rows that single points make, from name, step, time and value of each; of a double, each time."""
    rows: dict[tuple[int, int | float], list[dict[str, float]]] = defaultdict(list)
    for name, step, time, value in points:
        of_this_time = rows[step, time]
        target = next((row for row in of_this_time if name not in row), None)
        if target is None:
            of_this_time.append(target := {})
        target[name] = value
    for (step, _), of_this_time in rows.items():
        for values in of_this_time:
            yield int(values.get("who", -1)), step, 0, values


def _jsonl(run_dir: Path) -> Shown:
    rows, torn = [], 0
    for line in (run_dir / "rows.jsonl").read_bytes().splitlines():
        try:
            row = msgspec.json.decode(line)
            rows.append((row["attempt"], row["step"], row.get("part", 0), row["values"]))
        except (msgspec.DecodeError, KeyError):
            torn += 1
    return _shown(rows, torn)


def _archive(run_dir: Path) -> Shown:
    from otel_rl.export import Row
    from otel_rl.recorder.archive import files
    from otel_rl.recorder.archive.tables import KINDS
    from otel_rl.recorder.archive.writer import read
    from otel_rl.recorder.directory.parts import ARCHIVE

    tables = KINDS[Row]
    rows: list[Found] = []
    for place in (run_dir / ARCHIVE).glob("*"):
        for file in files.of_table(place, tables[-1].name):
            items = [item for item in read(place, tables, file) if isinstance(item, Row)]
            rows += ((row.attempt, row.step, row.part, row.values) for row in items)
    return _shown(rows)


def _tensorboard(run_dir: Path) -> Shown:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    points = ((name, e.step, e.wall_time, e.value) for name in ("loss", "who") for e in events.Scalars(name))
    return _shown(_points(points))


def _wandb(run_dir: Path) -> Shown:
    from otel_rl_exporters.wandb_files import history, wait_for_writers

    logs = sorted(run_dir.glob("wandb/*run-*/*.wandb"))
    wait_for_writers(logs, 60)

    def rows() -> Iterator[Found]:
        for path in logs:
            for row in history(path, "step"):
                if row.key[0] == "row":
                    _, step, attempt, part, _ = row.key
                    yield attempt, step, part, {name: json.loads(text) for name, text in row.values.items()}  # type: ignore[misc]

    return _shown(rows())


def _mlflow(run_dir: Path) -> Shown:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{run_dir}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    rows: list[Found] = []
    for one in client.search_runs(experiments):
        histories = [(name, client.get_metric_history(one.info.run_id, name)) for name in ("loss", "who")]
        rows += _points((name, p.step, p.timestamp, p.value) for name, points in histories for p in points)
    return _shown(rows)


def _swanlab(run_dir: Path) -> Shown:
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    from otel_rl_exporters.leveldb_log import LogReader

    def points() -> Iterator[tuple[str, int, int | float, float]]:
        for path in sorted(run_dir.glob("swanlab/run-*/*.swanlab")):
            for content in LogReader(path).read():
                one: Any = Record.FromString(content)
                if one.WhichOneof("record_type") == "scalar" and one.scalar.key in ("loss", "who"):
                    point = one.scalar
                    yield point.key, point.step, point.timestamp.ToNanoseconds(), point.value.number

    return _shown(_points(points()))


def _trackio(run_dir: Path) -> Shown:
    rows: list[Found] = []
    for path in (run_dir / "trackio").glob("*.db"):
        database = sqlite3.connect(path)
        for step, text in database.execute("SELECT step, metrics FROM metrics ORDER BY id"):
            values = json.loads(text)
            rows.append((values.get("rl/attempt", 0), step, values.get("rl/part", 0), values))
        database.close()
    return _shown(rows)


READERS: dict[str, tuple[Callable[[Path], Shown], Callable[[list[Attempt], Shown], Verdict]]] = {
    "archive": (_archive, _of_all),
    "jsonl": (_jsonl, _of_all),
    "tensorboard": (_tensorboard, _of_the_last),
    "wandb": (_wandb, _of_all),
    "mlflow": (_mlflow, _of_all),
    "swanlab": (_swanlab, _of_any),
    "trackio": (_trackio, _of_all),
}
"""How the rows of each tracker are read, and judged."""

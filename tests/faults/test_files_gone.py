"""Files of exporters that are removed, replaced or cut while the run goes on: nothing that the outbox has is lost."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import otel_rl
from otel_rl.agent.repair.release import Release
from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox, released_items
from otel_rl.export import Ended, Gone, Machine, Row, RunInfo
from otel_rl.journal.segments import START
from otel_rl.journal.writer import Writer
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from otel_rl_exporters.jsonl import JsonlExporter
from otel_rl_exporters.tensorboard import TensorBoardExporter
from tests.collector import wait_for
from tests.exporters import swanlab_file, wandb_file
from tests.processes import remove, rows_of
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_rl.export import Item

pytestmark = pytest.mark.slow


def replace(path: Path) -> None:
    """Put something else in its place, as an editor and `sed -i` do; the old one lives on elsewhere."""
    path.rename(path.with_name(f"{path.name}.old"))
    path.mkdir() if path.with_name(f"{path.name}.old").is_dir() else path.touch()


def cut(path: Path) -> None:
    """Empty a file, or all files in a directory, in their places."""
    for file in [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]:
        os.truncate(file, 0)


ACCIDENTS = [remove, replace, cut]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A run directory."""
    for name in ("outbox", "cursors"):
        (tmp_path / "local" / name).mkdir(parents=True)
    return tmp_path


class Delivery:
    """An exporter, and the outbox that it delivers."""

    def __init__(self, place: Path, factory: Any) -> None:
        self.outbox = Outbox(place / "local" / "outbox", 1 << 30)
        info = RunInfo("i", "p", "n", str(place))
        self.exporter = ExporterThread("a", factory, {}, info, self.outbox, place / "local" / "cursors")
        self.exporter.start()

    def put(self, *items: Item) -> None:
        """Deliver items."""
        self.outbox.append(items, b"\xc0")
        wait_for(lambda: self.exporter.delivered >= self.outbox.end, "not all is delivered", 200)

    def end(self) -> None:
        """End the exporter in order."""
        self.exporter.close_when_done()
        self.exporter.join(60)
        assert not self.exporter.is_alive()
        self.outbox.close()


@pytest.fixture
def deliver(place: Path) -> Iterator[Callable[[Any], Delivery]]:
    """A function that starts an exporter."""
    made: list[Delivery] = []

    def start(factory: Any) -> Delivery:
        made.append(Delivery(place, factory))
        return made[-1]

    yield start
    for one in made:
        one.exporter.stop()


def row(n: int) -> Row:
    """Return the row of a step."""
    return Row(n, 10**18 + n * 10**9, {"a": float(n)})


def steps_of_jsonl(place: Path) -> list[int]:
    """Return the steps in `rows.jsonl`."""
    return [json.loads(line)["step"] for line in (place / "rows.jsonl").read_text().splitlines()]


def steps_of_tensorboard(place: Path) -> list[int]:
    """Return the steps that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(place / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return [event.step for event in events.Scalars("a")]


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_jsonl_file_is_made_again(deliver: Any, place: Path, accident: Callable[[Path], None]) -> None:
    """Rows before and after the accident are in the new file, each once; the accident is counted and reported."""
    delivery = deliver(JsonlExporter)
    delivery.put(*(row(n) for n in range(5)))
    accident(place / "rows.jsonl")
    delivery.put(*(row(n) for n in range(5, 8)))
    delivery.end()

    assert sorted(steps_of_jsonl(place)) == list(range(8))
    assert delivery.exporter.causes == {"gone": 1}
    assert "rows.jsonl was" in delivery.exporter.last_error


@needs("tensorboard")
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_event_files_are_made_again(deliver: Any, place: Path, accident: Callable[[Path], None]) -> None:
    """TensorBoard shows all rows once: those before the accident and those after it."""
    delivery = deliver(TensorBoardExporter)
    delivery.put(*(row(n) for n in range(5)), Machine(1, 10**18, {"gpu": 1.0}))
    accident(place / "tensorboard")
    delivery.put(*(row(n) for n in range(5, 8)))
    delivery.end()

    assert steps_of_tensorboard(place) == list(range(8))
    assert delivery.exporter.causes == {"gone": 1}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_file_that_goes_after_the_last_row_is_made_again(
    deliver: Any, place: Path, accident: Callable[[Path], None]
) -> None:
    """The end of the exporter notices it."""
    delivery = deliver(JsonlExporter)
    delivery.put(*(row(n) for n in range(5)))
    accident(place / "rows.jsonl")
    delivery.end()

    assert steps_of_jsonl(place) == list(range(5))


def test_the_file_of_measurements_is_made_again(deliver: Any, place: Path) -> None:
    """It goes alone: the rows stay as they are."""
    delivery = deliver(JsonlExporter)
    delivery.put(row(1), Machine(1, 10**18, {"gpu": 1.0}))
    (place / "machine.jsonl").unlink()
    delivery.put(row(2), Machine(2, 10**18, {"gpu": 1.0}))
    delivery.end()

    assert steps_of_jsonl(place) == [1, 2]
    assert len((place / "machine.jsonl").read_text().splitlines()) == 2


def test_a_copy_in_its_place_is_continued(deliver: Any, place: Path) -> None:
    """An editor replaced the file by one with a row less: that row comes back, the others stay where they are."""
    delivery = deliver(JsonlExporter)
    delivery.put(*(row(n) for n in range(5)))
    path = place / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.unlink()
    path.write_text("".join(lines[:2] + lines[3:]))
    delivery.put(row(5))
    delivery.end()

    assert sorted(steps_of_jsonl(place)) == list(range(6))
    assert path.read_text().startswith("".join(lines[:2] + lines[3:]))


def test_a_cleaner_that_removes_again_and_again_loses_nothing(deliver: Any, place: Path) -> None:
    """Whoever removes the file three times gets all rows at the end."""
    delivery = deliver(JsonlExporter)
    for n in range(4):
        delivery.put(row(n))
        if n < 3:
            (place / "rows.jsonl").unlink()
    delivery.end()

    assert steps_of_jsonl(place) == list(range(4))
    assert delivery.exporter.causes == {"gone": 3}


def test_what_the_outbox_has_no_more_is_told(deliver: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows were removed from the outbox when they were delivered: all others are written again."""
    monkeypatch.setattr(Writer.__init__, "__kwdefaults__", {"segment_bytes": 10_000, "limit_bytes": 1 << 30})
    delivery = deliver(JsonlExporter)
    for n in range(300):
        delivery.outbox.append([row(n)], b"\xc0")
    wait_for(lambda: delivery.exporter.delivered >= delivery.outbox.end, "not all is delivered")
    Release(delivery.outbox, place / "local" / "cursors", None, 0).look(["a.json"])
    (place / "rows.jsonl").unlink()
    delivery.put(row(300))
    delivery.end()

    removed = released_items(place / "local" / "outbox")
    assert 100 < removed < 300
    assert steps_of_jsonl(place) == list(range(removed, 301))
    assert f"without the run's first {removed} item(s)" in delivery.exporter.last_error
    assert (delivery.exporter.damaged, delivery.exporter.retained) == (0, 0)


def test_how_the_run_ended_is_shown_again(deliver: Any, place: Path) -> None:
    """The new file has the end of the run in it."""
    delivery = deliver(JsonlExporter)
    delivery.put(row(1), Ended(10**18, 0, "failed", "ValueError: x", 1))
    (place / "rows.jsonl").unlink()
    (place / "run.end.json").unlink()
    delivery.end()

    assert json.loads((place / "run.end.json").read_bytes())["outcome"] == "failed"


def test_a_run_directory_that_was_removed_does_not_come_back(deliver: Any, place: Path) -> None:
    """The outbox went too: there is nothing to make anything from."""
    delivery = deliver(JsonlExporter)
    delivery.put(row(1))
    moved = place.with_name("moved")
    place.rename(moved)
    delivery.exporter.close_when_done()
    wait_for(lambda: delivery.exporter.failures > 0, "it is not noticed")

    assert not place.exists()
    moved.rename(place)


def test_through_the_agent(tmp_path: Path) -> None:
    """`rows.jsonl` is removed while the trainer records: all rows are there, and `finish` says so."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    for n in range(20):
        run.log({"a": float(n)}, step=n)
        if n == 10:
            wait_for(lambda: len(rows_of(run.dir)) > 5, "nothing is delivered")
            (run.dir / "rows.jsonl").unlink()

    assert run.finish(60)
    assert sorted(row["step"] for row in rows_of(run.dir)) == list(range(20))
    assert agent_start.read_status(directories.at(run.dir)).failures == {"jsonl": 1}
    assert "rows.jsonl was removed or replaced" in (run.dir / "agent.log").read_text()


@needs("wandb")
@pytest.mark.parametrize("accident", [remove, replace])
def test_a_wandb_run_is_logged_again(
    deliver: Any, place: Path, accident: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs of an offline run go: all rows are in a new one."""
    from otel_rl_exporters.wandb import WandbExporter

    monkeypatch.setenv("WANDB_MODE", "offline")
    delivery = deliver(partial(WandbExporter, mode="offline"))
    delivery.put(*(row(n) for n in range(3)))
    accident(place / "wandb")
    delivery.put(row(3))
    delivery.end()

    files = wandb_file.files(str(place))
    assert sorted(int(line["step"]) for file in files for line in wandb_file.history(file)) == list(range(4))
    assert delivery.exporter.causes == {"gone": 1}


@needs("mlflow")
def test_a_database_of_mlflow_is_made_again(deliver: Any, place: Path) -> None:
    """MLflow would go on writing to the file that nobody sees any more."""
    from otel_rl_exporters.mlflow import MlflowExporter

    delivery = deliver(MlflowExporter)
    delivery.put(*(row(n) for n in range(3)))
    remove(place / "mlflow.db")
    delivery.put(row(3))
    delivery.end()

    with closing(sqlite3.connect(place / "mlflow.db")) as database:
        found = database.execute("SELECT step FROM metrics ORDER BY step").fetchall()
    assert [step for (step,) in found] == list(range(4))
    assert delivery.exporter.causes == {"gone": 1}


@needs("trackio")
def test_a_database_of_trackio_is_made_again(deliver: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackio would go on in a new file without what it had."""
    monkeypatch.setenv("TRACKIO_DIR", str(place / "trackio"))
    import trackio.sqlite_storage

    from otel_rl_exporters.trackio import TrackioExporter

    directory = Path(trackio.sqlite_storage.TRACKIO_DIR)  # trackio reads its variable once in a process
    project = f"gone{time.time_ns()}"
    delivery = deliver(partial(TrackioExporter, project=project))
    delivery.put(*(row(n) for n in range(3)))
    (path,) = directory.glob(f"{project}*.db")
    path.unlink()
    delivery.put(row(3))
    delivery.end()

    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT step FROM metrics ORDER BY step").fetchall()
    path.unlink()
    assert [step for (step,) in found] == list(range(4))
    assert delivery.exporter.causes == {"gone": 1}


@needs("swanlab")
def test_a_log_of_swanlab_is_written_again(deliver: Any, place: Path) -> None:
    """The directory of an offline run goes: all rows are in a new log."""
    from otel_rl_exporters.swanlab import SwanlabExporter

    delivery = deliver(partial(SwanlabExporter, mode="offline"))
    delivery.put(*(row(n) for n in range(3)))
    remove(place / "swanlab")
    delivery.put(row(3))
    delivery.end()

    scalars = [one.scalar for one in swanlab_file.records(place) if one.WhichOneof("record_type") == "scalar"]
    assert sorted(one.step for one in scalars) == list(range(4))
    assert delivery.exporter.causes == {"gone": 1}


class Nowhere:
    """An exporter of somebody else's, whose backend is gone whatever it does."""

    def __init__(self, _: RunInfo) -> None:
        self.is_closed = False

    def export(self, items: Sequence[Item]) -> None:
        """Say so."""
        raise Gone("it is nowhere")

    def shutdown(self) -> None:
        """Say so again."""
        raise Gone("it is still nowhere")


def test_an_exporter_that_is_always_gone(deliver: Any, place: Path) -> None:
    """It is tried again with pauses, is counted each time, and nothing of it counts as delivered."""
    delivery = deliver(Nowhere)
    delivery.outbox.append([row(1)], b"\xc0")
    wait_for(lambda: delivery.exporter.failures >= 3, "it is not tried again")
    delivery.exporter.stop()
    delivery.exporter.join(10)

    assert not delivery.exporter.is_alive()
    assert set(delivery.exporter.causes) == {"gone"}
    assert delivery.exporter.delivered == START
    assert delivery.exporter.taken == 0

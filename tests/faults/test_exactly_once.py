"""Items for an exporter after it was killed: none that its backend has, and all that it does not have."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from otel_rl.export import Event, Item, Machine, Params, Refused, Row, RunInfo, Table
from otel_rl.recorder.delivery import exporter_thread, handover
from otel_rl.recorder.delivery.plugins import find_exporter
from otel_rl_exporters import wandb_files
from otel_rl_exporters.jsonl import JsonlExporter
from otel_rl_exporters.tensorboard import TensorBoardExporter
from otel_rl_exporters.wandb import WandbExporter
from tests.collector import wait_for
from tests.delivering import Agents
from tests.exporters import swanlab_file, wandb_file
from tests.processes import start, start_python
from tests.real_parts import needs
from tests.trackers import CURVES

pytestmark = pytest.mark.usefixtures("offline")


class Buffering:
    """An exporter that holds things back, as W&B's service does, until somebody flushes it or shuts it down."""

    stored: ClassVar[list[int]] = []
    flushed: ClassVar[int] = 0

    def __init__(self, _: RunInfo) -> None:
        self.given: list[int] = []
        self.written = 0

    def export(self, items: Sequence[Item]) -> None:
        """Keep the items in memory."""
        self.given += [item.time_unix_nano for item in items if isinstance(item, Params)]

    def durable(self) -> int:
        """Write what may be written."""
        self._write(self.flushed)
        return self.written

    def holds(self, item: Item) -> bool:
        """Look into what was stored."""
        return isinstance(item, Params) and item.time_unix_nano in self.stored

    def shutdown(self) -> None:
        """Write everything."""
        self._write(len(self.given))

    def _write(self, count: int) -> None:
        Buffering.stored.extend(self.given[self.written : count])
        self.written = min(count, len(self.given))


@pytest.fixture(autouse=True)
def _nothing_is_stored() -> None:
    Buffering.stored, Buffering.flushed = [], 0


EIGHT = [Params(n, {"text": "x" * 1000}) for n in range(8)]


def test_what_is_not_safe_is_given_again(agents: Agents) -> None:
    """Of eight items that an exporter took, three are safe: its cursor waits, and the next one gets the other five."""
    thread = agents.start(Buffering, EIGHT)
    wait_for(lambda: thread.has_everything, "not all were taken")
    Buffering.flushed = 3
    wait_for(lambda: len(Buffering.stored) == 3, "nothing is written")
    assert thread.delivered < agents.outbox.end
    Buffering.flushed = 8
    agents.start(Buffering)
    agents.put()

    assert Buffering.stored == list(range(8))


def test_the_end_makes_safe_what_is_held_back(agents: Agents) -> None:
    """Nothing is flushed before the exporter is shut down: after that everything is delivered."""
    agents.deliver(Buffering, *EIGHT)

    assert Buffering.stored == list(range(8))


class Patient(Buffering):
    """An exporter that waits for the trainer."""

    waits = True


def test_who_is_stuck_is_replaced(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing becomes safe for long: the end of the exporter makes it safe."""
    monkeypatch.setattr(exporter_thread, "_STUCK_S", 0.2)
    agents.start(Buffering, EIGHT)
    wait_for(lambda: Buffering.stored == list(range(8)), "it is not replaced")


def test_who_waits_for_the_trainer_is_not_replaced(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing becomes safe for long, as the trainer is slow: nothing is logged without it."""
    monkeypatch.setattr(exporter_thread, "_STUCK_S", 0.2)
    thread = agents.start(Patient, EIGHT)
    wait_for(lambda: thread.has_everything, "not all were taken")
    time.sleep(1)

    assert Buffering.stored == []
    assert thread.failures == 0


def test_the_end_comes_to_who_waits_with_more_than_there_is_room_for(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer logs nothing any more: what waits is logged at the end, and what is behind it too."""
    monkeypatch.setattr(handover, "MOST_IN_FLIGHT", 3)
    agents.deliver(Patient, *EIGHT)

    assert Buffering.stored == list(range(8))


@pytest.mark.parametrize("removed", ["*", "*.seg"])
def test_a_cursor_of_another_outbox_is_not_followed(agents: Agents, removed: str) -> None:
    """The outbox, or its segments alone, were deleted: of the new one, what the backend has not is delivered."""
    Buffering.flushed = 99
    agents.start(Buffering, EIGHT)
    agents.put()
    agents.stop()
    for file in (agents.local / "outbox").glob(removed):
        file.unlink()
    again = agents.start(Buffering, [Params(n, {}) for n in range(6, 10)])
    agents.put()

    assert Buffering.stored == list(range(10))
    assert again.failures == 1
    assert "another outbox" in again.last_error


def rows() -> list[Item]:
    """Rows of two attempts that repeat steps, one of them late, and measurements."""
    return [
        Row(1, 10, {"a": 1.0}),
        Row(2, 20, {"a": 2.0}),
        Row(2, 21, {"b": 2.0}, late=True, part=1),
        Machine(5, 5_000_000_000, {"gpu": 1.0}),
        Row(2, 30, {"a": 3.0}, attempt=1),
        Machine(5, 5_000_000_001, {"gpu": 2.0}),
    ]


@needs("tensorboard")
@pytest.mark.parametrize("there", range(7))
@pytest.mark.parametrize("exporting", [JsonlExporter, TensorBoardExporter])
def test_what_an_exporter_holds(tmp_path: Path, there: int, exporting: Any) -> None:
    """Killed behind any row: the next one holds exactly what was written."""
    run = RunInfo("i", "p", "n", str(tmp_path))
    exporter = exporting(run)
    exporter.export(rows()[:there])

    again = exporting(run)
    assert [again.holds(row) for row in rows()] == [n < there for n in range(6)]


@needs("tensorboard")
@pytest.mark.parametrize("cut", range(1, 60))
def test_tensorboard_shows_each_row_once_behind_a_torn_record(tmp_path: Path, cut: int) -> None:
    """Killed inside a write, at any byte of the last record: it is written again, and no other."""
    run = RunInfo("i", "p", "n", str(tmp_path))
    TensorBoardExporter(run).export(rows()[:2])
    (file,) = (tmp_path / "tensorboard").iterdir()
    os.truncate(file, file.stat().st_size - cut)
    again = TensorBoardExporter(run)
    again.export([row for row in [*rows()[:2], Row(3, 90, {"a": 4.0})] if not again.holds(row)])

    assert [step for step, _ in CURVES["tensorboard"](tmp_path, "a")] == [1, 2, 3]


@needs("tensorboard")
def test_tensorboard_forgets_what_a_new_attempt_repeats(tmp_path: Path) -> None:
    """Steps 2 and 3 of the second attempt replace those of the first one, which comes late and is killed in between."""
    run = RunInfo("i", "p", "n", str(tmp_path))
    machine = [Machine(n, n, {"gpu": 1.0}) for n in range(9)]
    first = TensorBoardExporter(run)
    first.export([*machine, *(Row(n, n, {"a": 1.0, "b": 1.0}) for n in range(6))])
    second = TensorBoardExporter(run)
    second.export([Row(2, 12, {"a": 2.0}, attempt=1), Row(5, 5, {"b": 1.5}, late=True, part=1)])
    third = TensorBoardExporter(run)
    third.export([Row(3, 13, {"a": 2.0}, attempt=1), Row(1, 1, {"b": 1.5}, late=True, part=1)])

    assert CURVES["tensorboard"](tmp_path, "a") == [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert CURVES["tensorboard"](tmp_path, "b") == [(0, 1), (1, 1), (1, 1.5)]
    assert CURVES["tensorboard"](tmp_path, "rl/attempt") == [(2, 1), (3, 1)]
    assert [step for step, _ in CURVES["tensorboard"](tmp_path / "tensorboard" / "machine", "gpu")] == list(range(9))


@needs("wandb")
def test_wandb_says_what_it_holds(tmp_path: Path) -> None:
    """Tables, measurements and rows of two attempts: the next exporter holds what its service wrote, no more."""
    run = RunInfo("i", "p", "n", str(tmp_path))
    table = Table("a/b:c", 2, 20, ("x",), ((1,),))
    everything = [*rows(), table, Row(2**64 - 1, 2**64 - 1, {"a": 1.0})]
    first = WandbExporter(run)
    for item in everything[::2]:
        first.export([item])
    first.shutdown()
    again = WandbExporter(run)
    held = [again.holds(item) for item in everything]
    again.shutdown()

    assert held == [n % 2 == 0 for n in range(len(everything))]


@needs("wandb")
def test_wandb_counts_what_its_service_wrote(tmp_path: Path) -> None:
    """Only items in the transaction log are safe: none at first, all after a moment."""
    exporter = WandbExporter(RunInfo("i", "p", "n", str(tmp_path)), settings={"x_transaction_log_flush_interval": 1.0})
    items: list[Item] = [Params(1, {"lr": 1.0}), *rows(), Event("e", 1)]
    for item in items:
        exporter.export([item])
    at_once = exporter.durable()
    wait_for(lambda: exporter.durable() == len(items), "not all is written")
    exporter.shutdown()

    assert at_once < len(items)


@needs("wandb")
def test_wandb_holds_online_what_its_server_has(tmp_path: Path) -> None:
    """W&B's server goes on behind what it got; a number that a later service used again is of that service's row."""
    for steps in (range(5), range(3, 6)):
        exporter = WandbExporter(RunInfo("i", "p", "n", str(tmp_path)))
        for n in steps:
            exporter.export([Row(n, n + 10**18, {"a": 1.0 * n})])
        exporter.shutdown()
    wandb_file.wait_until_written(str(tmp_path))
    for path in wandb_file.files(str(tmp_path)):
        path.parent.rename(path.parent.with_name(path.parent.name.removeprefix("offline-")))

    logs = wandb_files.earlier(tmp_path, "i")
    assert [key[1] for key in wandb_files.held(logs[:1], "step", 4)] == [0, 1, 2, 3]
    assert [key[1] for key in wandb_files.held(logs, "step", 4)] == [3, 4, 5, 3]


def few() -> list[Item]:
    """Rows of many values, which a kill may tear, measurements of the same steps, and a table."""
    values = {f"value {n}": n / 8 for n in range(40)}
    rows = [Row(n, n + 10**18, values) for n in range(30)]
    machine = [Machine(n, n + 10**17, {"ray/gpu": n / 8}) for n in range(3)]
    return [*rows, *machine, Table("a/b:c", 2, 20, ("x",), ((1,),))]


def swanlab_points(place: Path) -> list[tuple[str, int, int]]:
    """Return name, step and time of all that is in SwanLab's logs."""
    found = []
    for record in swanlab_file.records(place):
        kind = record.WhichOneof("record_type")
        if kind in ("scalar", "media"):
            point = getattr(record, kind)
            found.append((point.key, point.step, point.timestamp.ToNanoseconds()))
    return found


def points_of(items: Sequence[Item]) -> list[tuple[str, int, int]]:
    """Return name, step and time of all that items hold."""
    return [
        (name, item.step, item.time_unix_nano)
        for item in items
        if isinstance(item, Row | Machine | Table)
        for name in ([item.name] if isinstance(item, Table) else item.values)
    ]


_KILLED = """
import os, signal, sys, time
from tests.faults.test_exactly_once import exporter_of, few
tracker, place, moment = sys.argv[1:]
exporter = exporter_of(tracker, place)
for item in few():
    if not exporter.holds(item):
        exporter.export([item])
time.sleep(float(moment))
print(exporter.durable(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def exporter_of(tracker: str, place: Path | str, id_: str = "i") -> Any:
    """Return an exporter of a run, whose backend soon writes what is in memory."""
    options = {"settings": {"x_transaction_log_flush_interval": 0.5}} if tracker == "wandb" else {}
    return find_exporter(tracker)(RunInfo(id_, "p", "n", str(place)), **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "moments"),
    [
        *(pytest.param("wandb", moments, marks=needs("wandb")) for moments in ([0.0], [0.2], [0.6])),
        *(pytest.param("swanlab", moments, marks=needs("swanlab")) for moments in ([0.0, 0.1], [0.7])),
    ],
)
def test_what_was_in_memory_is_logged_again(tmp_path: Path, tracker: str, moments: Sequence[float]) -> None:
    """Killed before, while or after the tracker writes: what it does not hold is logged, each value once."""
    safe = 0
    for moment in moments:
        killed = start([sys.executable, "-c", _KILLED, tracker, str(tmp_path), str(moment)], tmp_path)
        safe = max(safe, int(killed.communicate()[0].split()[-1]))  # SwanLab prints, too
    again = exporter_of(tracker, tmp_path)
    held = [again.holds(item) for item in few()]
    for item, there in zip(few(), held, strict=True):
        if not there:
            again.export([item])
    again.shutdown()

    assert all(held[:safe])
    for name in (row := few()[0]).values:
        assert sorted(CURVES[tracker](tmp_path, name)) == [(n, row.values[name]) for n in range(30)]


@needs("swanlab")
def test_swanlab_completes_a_torn_row(tmp_path: Path) -> None:
    """The log was cut inside a row: the values that are missing are logged, and no other."""
    for size in (20_000, 10_000, None):
        exporter = exporter_of("swanlab", tmp_path)
        for item in few():
            if not exporter.holds(item):
                exporter.export([item])
        exporter.shutdown()
        if size is not None:
            log = max(tmp_path.glob("swanlab/run-*/*.swanlab"), key=lambda path: path.stat().st_mtime_ns)
            os.truncate(log, size)

    assert sorted(swanlab_points(tmp_path)) == sorted(points_of(few()))


@needs("swanlab")
def test_swanlab_counts_what_is_in_its_file(tmp_path: Path) -> None:
    """Nothing is safe at first, everything after a moment; then all of it is in the file, which is still open."""
    exporter = exporter_of("swanlab", tmp_path)
    items: list[Item] = [Params(1, {"lr": 1.0}), *few(), Event("e", 1)]
    for item in items:
        exporter.export([item])
    at_once = exporter.durable()
    wait_for(lambda: exporter.durable() == len(items), "not all is written")
    written = sorted(swanlab_points(tmp_path))
    exporter.shutdown()

    assert at_once < len(items)
    assert written == sorted(points_of(few()))


@needs("swanlab")
def test_swanlab_is_not_the_log_of_another_run(tmp_path: Path) -> None:
    """Two runs that share a directory: one has nothing of what the other one logged."""
    first = exporter_of("swanlab", tmp_path)
    first.export(few()[:1])
    first.shutdown()
    other = exporter_of("swanlab", tmp_path, "another")
    held = other.holds(few()[0])
    other.shutdown()

    assert not held


@needs("swanlab")
@pytest.mark.parametrize("step", [-1, 1 << 49])
def test_swanlab_says_which_step_it_does_not_take(tmp_path: Path, step: int) -> None:
    """It drops them without a word: they are refused, and so counted."""
    exporter = exporter_of("swanlab", tmp_path)
    with pytest.raises(Refused, match=f"step {step} "):
        exporter.export([Row(step, 1, {"a": 1.0})])
    exporter.shutdown()


@pytest.mark.slow
@needs("trackio")
def test_trackio_takes_nothing_twice(tmp_path: Path) -> None:
    """Killed, and given everything again: each row is in the database once, with its time."""
    program = f"""
import os, signal
from otel_rl.export import Machine, Row, RunInfo, Table
from otel_rl_exporters.trackio import TrackioExporter
exporter = TrackioExporter(RunInfo("i", "p", "n", {str(tmp_path)!r}))
for n in range(5):
    exporter.export([Row(n, n * 10**9, {{"a": 1.0}}), Machine(n, n, {{"gpu": 1.0}})])
exporter.export([Row(4, 5 * 10**9, {{"a": 1.0}}, attempt=1), Table("t", 4, 1, ("x",), ((1,),))])
os.kill(os.getpid(), signal.SIGKILL)
"""
    for _ in range(2):
        start_python(program, tmp_path, TRACKIO_DIR=str(tmp_path / "trackio")).wait()
    (path,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(path) as database:
        found = database.execute("SELECT step, metrics, timestamp FROM metrics ORDER BY id").fetchall()

    assert len(found) == 12
    assert found[2][2].startswith("1970-01-01T00:00:01")
    assert json.loads(found[10][1]) == {"a": 1.0, "rl/attempt": 1}

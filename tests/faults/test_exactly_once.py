"""Items for an exporter after it was killed: none that its backend has, and all that it does not have."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from otel_rl.delivery import exporter_thread, handover
from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.export import Event, Item, Machine, Params, Refused, Row, RunInfo, Table
from otel_rl_exporters import wandb_files
from otel_rl_exporters.jsonl import JsonlExporter
from otel_rl_exporters.tensorboard import TensorBoardExporter
from otel_rl_exporters.wandb import WandbExporter
from tests.collector import wait_for
from tests.exporters import swanlab_file, wandb_file
from tests.processes import start_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_rl.export import Exporter


class Buffering:
    """An exporter that holds things back, as W&B's service does, until somebody flushes it or shuts it down."""

    stored: ClassVar[list[int]] = []
    flushed: ClassVar[int] = 0
    built: ClassVar[int] = 0

    def __init__(self, _: RunInfo) -> None:
        type(self).built += 1
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
        self.stored.extend(self.given[self.written : count])
        self.written = min(count, len(self.given))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A run directory."""
    Buffering.stored, Buffering.flushed, Buffering.built = [], 0, 0
    for name in ("outbox", "cursors"):
        (tmp_path / "local" / name).mkdir(parents=True)
    return tmp_path


class Agents:
    """One exporter after the other on the same run directory."""

    def __init__(self, place: Path) -> None:
        self.local = place / "local"
        self.info = RunInfo("i", "p", "n", str(place))
        self.running: list[tuple[ExporterThread, Outbox]] = []

    def start(self, factory: Callable[..., Exporter], items: Sequence[Item] = ()) -> tuple[ExporterThread, Outbox]:
        """Start an exporter, after the one before it has ended; put items into the outbox."""
        self.stop()
        outbox = Outbox(self.local / "outbox", 1 << 30)
        if items:
            outbox.append(items, b"\xc0")
        thread = ExporterThread("a", factory, {}, self.info, outbox, self.local / "cursors")
        self.running = [(thread, outbox)]
        thread.start()
        return thread, outbox

    def stop(self) -> None:
        """End the exporter where it is; its exporter is not shut down, as if the agent had been killed."""
        for thread, outbox in self.running:
            thread.stop()
            thread.join(10)
            outbox.close()
        self.running = []


@pytest.fixture
def agents(place: Path) -> Iterator[Agents]:
    """A function that starts exporters."""
    agents = Agents(place)
    yield agents
    agents.stop()


def test_the_cursor_waits_for_what_is_safe(agents: Agents) -> None:
    """Taken is not delivered: of eight items that the exporter took, three are safe."""
    thread, outbox = agents.start(Buffering, [Params(n, {}) for n in range(8)])
    wait_for(lambda: thread.has_everything, "not all were taken")
    Buffering.flushed = 3
    wait_for(lambda: len(Buffering.stored) == 3, "nothing is written")

    assert thread.delivered < outbox.end


def test_what_was_not_safe_is_given_again(agents: Agents) -> None:
    """An agent dies while its exporter holds five items back: the next one gets those, and no other."""
    thread, _ = agents.start(Buffering, [Params(n, {}) for n in range(8)])
    wait_for(lambda: thread.has_everything, "not all were taken")
    Buffering.flushed = 3
    wait_for(lambda: len(Buffering.stored) == 3, "nothing is written")
    Buffering.flushed = 8
    again, outbox = agents.start(Buffering)
    wait_for(lambda: again.delivered >= outbox.end, "not all is safe")

    assert Buffering.stored == list(range(8))


def test_the_end_makes_safe_what_is_held_back(agents: Agents) -> None:
    """Nothing is flushed before the exporter is shut down: after that everything is delivered."""
    thread, outbox = agents.start(Buffering, [Params(n, {}) for n in range(8)])
    wait_for(lambda: thread.has_everything, "not all were taken")
    thread.close_when_done()
    thread.join(10)

    assert Buffering.stored == list(range(8))
    assert thread.delivered >= outbox.end


class Patient(Buffering):
    """An exporter that waits for the trainer."""

    waits = True


def test_who_is_stuck_is_replaced(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing becomes safe for long: the end of the exporter makes it safe."""
    monkeypatch.setattr(exporter_thread, "_STUCK_S", 0.2)
    agents.start(Buffering, [Params(n, {}) for n in range(8)])
    wait_for(lambda: Buffering.stored == list(range(8)), "it is not replaced")


def test_who_waits_for_the_trainer_is_not_replaced(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing becomes safe for long, as the trainer is slow: nothing is logged without it."""
    monkeypatch.setattr(exporter_thread, "_STUCK_S", 0.2)
    Patient.stored = []
    thread, _ = agents.start(Patient, [Params(n, {}) for n in range(8)])
    wait_for(lambda: thread.has_everything, "not all were taken")
    time.sleep(1)

    assert Patient.stored == []
    assert thread.failures == 0


def test_the_end_comes_to_who_waits_with_more_than_there_is_room_for(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer logs nothing any more: what waits is logged at the end, and what is behind it too."""
    monkeypatch.setattr(handover, "MOST_IN_FLIGHT", 3)
    Patient.stored = []
    thread, outbox = agents.start(Patient, [Params(n, {}) for n in range(8)])
    thread.close_when_done()
    thread.join(10)

    assert Patient.stored == list(range(8))
    assert thread.delivered >= outbox.end


def test_a_cursor_of_another_outbox_is_not_followed(agents: Agents, place: Path) -> None:
    """The outbox was deleted: items of the new one that the backend does not have are delivered; a warning says so."""
    first, outbox = agents.start(Buffering, [Params(n, {}) for n in range(8)])
    Buffering.flushed = 99
    wait_for(lambda: first.delivered >= outbox.end, "not all is safe")
    agents.stop()
    for file in (place / "local" / "outbox").iterdir():
        file.unlink()
    again, outbox = agents.start(Buffering, [Params(n, {}) for n in range(6, 10)])
    wait_for(lambda: again.delivered >= outbox.end, "not all is safe")

    assert Buffering.stored == list(range(10))
    assert again.failures == 1
    assert "another outbox" in again.last_error


def test_a_cursor_behind_the_end_is_not_followed(agents: Agents, place: Path) -> None:
    """The segments were deleted and the identity stayed: the new ones are delivered from the beginning."""
    first, outbox = agents.start(Buffering, [Params(n, {"text": "x" * 1000}) for n in range(8)])
    Buffering.flushed = 99
    wait_for(lambda: first.delivered >= outbox.end, "not all is safe")
    agents.stop()
    for file in (place / "local" / "outbox").glob("*.seg"):
        file.unlink()
    again, outbox = agents.start(Buffering, [Params(9, {})])
    wait_for(lambda: again.delivered >= outbox.end, "not all is safe")

    assert Buffering.stored == [*range(8), 9]


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
def test_what_an_exporter_holds(place: Path, there: int, exporting: Any) -> None:
    """Killed behind any row: the next one holds exactly what was written."""
    run = RunInfo("i", "p", "n", str(place))
    exporter = exporting(run)
    exporter.export(rows()[:there])

    again = exporting(run)
    assert [again.holds(row) for row in rows()] == [n < there for n in range(6)]


@needs("tensorboard")
@pytest.mark.parametrize("cut", range(1, 60))
def test_tensorboard_shows_each_row_once_behind_a_torn_record(place: Path, cut: int) -> None:
    """Killed inside a write, at any byte of the last record: it is written again, and no other."""
    run = RunInfo("i", "p", "n", str(place))
    TensorBoardExporter(run).export(rows()[:2])
    (file,) = (place / "tensorboard").iterdir()
    os.truncate(file, file.stat().st_size - cut)
    again = TensorBoardExporter(run)
    again.export([row for row in [*rows()[:2], Row(3, 90, {"a": 4.0})] if not again.holds(row)])

    assert [event.step for event in scalars(place, "a")] == [1, 2, 3]


@needs("tensorboard")
def test_tensorboard_forgets_what_a_new_attempt_repeats(place: Path) -> None:
    """Steps 2 and 3 of the second attempt replace those of the first one, which comes late and is killed in between."""
    run = RunInfo("i", "p", "n", str(place))
    machine = [Machine(n, n, {"gpu": 1.0}) for n in range(9)]
    first = TensorBoardExporter(run)
    first.export([*machine, *(Row(n, n, {"a": 1.0, "b": 1.0}) for n in range(6))])
    second = TensorBoardExporter(run)
    second.export([Row(2, 12, {"a": 2.0}, attempt=1), Row(5, 5, {"b": 1.5}, late=True, part=1)])
    third = TensorBoardExporter(run)
    third.export([Row(3, 13, {"a": 2.0}, attempt=1), Row(1, 1, {"b": 1.5}, late=True, part=1)])

    assert [(event.step, event.value) for event in scalars(place, "a")] == [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert [(event.step, event.value) for event in scalars(place, "b")] == [(0, 1), (1, 1), (1, 1.5)]
    assert [(event.step, event.value) for event in scalars(place, "rl/attempt")] == [(2, 1), (3, 1)]
    assert [event.step for event in scalars(place / "tensorboard" / "machine", "gpu")] == list(range(9))


def scalars(place: Path, name: str) -> list[Any]:
    """Return the points of a curve, as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = place / "tensorboard" if (place / "tensorboard").exists() else place
    return list(EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload().Scalars(name))


def test_jsonl_rows_are_written_once(agents: Agents, place: Path) -> None:
    """The cursor is lost after every row was written: none is written again."""
    first, outbox = agents.start(JsonlExporter, rows())
    wait_for(lambda: first.delivered >= outbox.end, "not all is safe")
    agents.stop()
    (place / "local" / "cursors" / "a.json").unlink()
    with (place / "rows.jsonl").open("a") as file:
        file.write('{"step":7,"time_unix')  # torn
    again, outbox = agents.start(JsonlExporter, [Row(9, 90, {"a": 4.0})])
    wait_for(lambda: again.delivered >= outbox.end, "not all is safe")

    lines = [json.loads(line) for line in (place / "rows.jsonl").read_text().splitlines()]
    assert [(line["attempt"], line["step"], line.get("part", 0)) for line in lines] == [
        (0, 1, 0),
        (0, 2, 0),
        (0, 2, 1),
        (1, 2, 0),
        (0, 9, 0),
    ]
    assert len((place / "machine.jsonl").read_text().splitlines()) == 2


@needs("wandb")
def test_wandb_says_what_it_holds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, measurements and rows of two attempts: the next exporter holds what its service wrote, no more."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = RunInfo("i", "p", "n", str(place))
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
def test_wandb_counts_what_its_service_wrote(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only items in the transaction log are safe: none at first, all after a moment."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    exporter = WandbExporter(RunInfo("i", "p", "n", str(place)), settings={"x_transaction_log_flush_interval": 1.0})
    items: list[Item] = [Params(1, {"lr": 1.0}), *rows(), Event("e", 1)]
    for item in items:
        exporter.export([item])
    at_once = exporter.durable()
    wait_for(lambda: exporter.durable() == len(items), "not all is written")
    exporter.shutdown()

    assert at_once < len(items)


def lose_a_row(run_dir: str, moment: float) -> int:
    """Kill an exporter a moment after it was given 30 rows, as an agent is killed; return how many it called safe."""
    program = f"""
import os, signal, time
from otel_rl.export import Row, RunInfo
from otel_rl_exporters.wandb import WandbExporter
exporter = WandbExporter(RunInfo("i", "p", "n", {run_dir!r}), settings={{"x_transaction_log_flush_interval": 0.5}})
for n in range(30):
    exporter.export([Row(n, n + 10**18, {{"a": 1.0 * n}})])
time.sleep({moment})
print(exporter.durable(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    return int(start_python(program, Path(run_dir), WANDB_MODE="offline").communicate()[0])


@pytest.mark.slow
@needs("wandb")
@pytest.mark.parametrize("moment", [0.0, 0.2, 0.6])
def test_wandb_logs_what_its_service_lost(place: Path, moment: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before, while or after its service writes: rows that are not held are logged; each is there once."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    safe = lose_a_row(str(place), moment)
    again = WandbExporter(RunInfo("i", "p", "n", str(place)))
    given: list[Item] = [Row(n, n + 10**18, {"a": 1.0 * n}) for n in range(30)]
    held = [again.holds(row) for row in given]
    for row in given:
        if not again.holds(row):
            again.export([row])
    again.shutdown()
    wandb_file.wait_until_written(str(place), last_alone=True)

    assert all(held[:safe])
    found = [int(line["step"]) for file in wandb_file.files(str(place)) for line in wandb_file.history(file)]
    assert sorted(found) == list(range(30))


@needs("wandb")
def test_what_wandb_did_not_send_is_logged_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B's server goes on behind what it got: rows with a higher number in any log are missing, unless it got them."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    for steps in (range(5), range(3, 6)):
        exporter = WandbExporter(RunInfo("i", "p", "n", str(place)))
        for n in steps:
            exporter.export([Row(n, n + 10**18, {"a": 1.0 * n})])
        exporter.shutdown()
    wandb_file.wait_until_written(str(place))

    logs = wandb_file.files(str(place))
    assert [row.key[1] for row in wandb_files.missing(logs[:1], "step", 4)] == [4]
    assert [row.key[1] for row in wandb_files.missing(logs, "step", 2)] == [2, 5]


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


def kill_swanlab(run_dir: str, moment: float) -> int:
    """Kill an exporter a moment after it was given `few()`, as an agent is; return how many it called safe."""
    program = f"""
import os, signal, time
from otel_rl.export import RunInfo
from otel_rl_exporters.swanlab import SwanlabExporter
from tests.faults.test_exactly_once import few
exporter = SwanlabExporter(RunInfo("i", "p", "n", {run_dir!r}))
for item in few():
    if not exporter.holds(item):
        exporter.export([item])
time.sleep({moment})
print(exporter.durable(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    output = start_python(program, Path(run_dir), SWANLAB_MODE="offline").communicate()[0]
    return int(output.split()[-1])  # SwanLab prints, too


@pytest.mark.slow
@needs("swanlab")
@pytest.mark.parametrize("moments", [[0.0, 0.1], [0.7]])
def test_swanlab_logs_what_was_in_memory(
    place: Path, moments: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before, while or after it writes: each value of each row is there once, with the row's own time."""
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    safe = max([kill_swanlab(str(place), moment) for moment in moments])
    again = swanlab_exporter(place)
    held = [again.holds(item) for item in few()]
    for item, there in zip(few(), held, strict=True):
        if not there:
            again.export([item])
    again.shutdown()

    assert all(held[:safe])
    assert sorted(swanlab_points(place)) == sorted(points_of(few()))


@needs("swanlab")
def test_swanlab_completes_a_torn_row(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was cut inside a row: the values that are missing are logged, and no other."""
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    for size in (20_000, 10_000, None):
        exporter = swanlab_exporter(place)
        for item in few():
            if not exporter.holds(item):
                exporter.export([item])
        exporter.shutdown()
        if size is not None:
            log = max(place.glob("swanlab/run-*/*.swanlab"), key=lambda path: path.stat().st_mtime_ns)
            os.truncate(log, size)

    assert sorted(swanlab_points(place)) == sorted(points_of(few()))


@needs("swanlab")
def test_swanlab_counts_what_is_in_its_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is safe at first, everything after a moment; then all of it is in the file, which is still open."""
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    exporter = swanlab_exporter(place)
    items: list[Item] = [Params(1, {"lr": 1.0}), *few(), Event("e", 1)]
    for item in items:
        exporter.export([item])
    at_once = exporter.durable()
    wait_for(lambda: exporter.durable() == len(items), "not all is written")
    written = sorted(swanlab_points(place))
    exporter.shutdown()

    assert at_once < len(items)
    assert written == sorted(points_of(few()))


@needs("swanlab")
def test_swanlab_is_not_the_log_of_another_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that share a directory: one has nothing of what the other one logged."""
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    first = swanlab_exporter(place)
    first.export(few()[:1])
    first.shutdown()
    other = swanlab_exporter(place, "another")
    held = other.holds(few()[0])
    other.shutdown()

    assert not held


@needs("swanlab")
@pytest.mark.parametrize("step", [-1, 1 << 49])
def test_swanlab_says_which_step_it_does_not_take(place: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops them without a word: they are refused, and so counted."""
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    exporter = swanlab_exporter(place)
    with pytest.raises(Refused, match=f"step {step} "):
        exporter.export([Row(step, 1, {"a": 1.0})])
    exporter.shutdown()


def swanlab_exporter(place: Path, id_: str = "i") -> Any:
    """Return an exporter of the run."""
    from otel_rl_exporters.swanlab import SwanlabExporter

    return SwanlabExporter(RunInfo(id_, "p", "n", str(place)))


@pytest.mark.slow
@needs("trackio")
def test_trackio_takes_nothing_twice(place: Path) -> None:
    """Killed, and given everything again: each row is in the database once, with its time."""
    program = f"""
import os, signal
from otel_rl.export import Machine, Row, RunInfo, Table
from otel_rl_exporters.trackio import TrackioExporter
exporter = TrackioExporter(RunInfo("i", "p", "n", {str(place)!r}))
for n in range(5):
    exporter.export([Row(n, n * 10**9, {{"a": 1.0}}), Machine(n, n, {{"gpu": 1.0}})])
exporter.export([Row(4, 5 * 10**9, {{"a": 1.0}}, attempt=1), Table("t", 4, 1, ("x",), ((1,),))])
os.kill(os.getpid(), signal.SIGKILL)
"""
    for _ in range(2):
        start_python(program, place, TRACKIO_DIR=str(place / "trackio")).wait()
    (path,) = (place / "trackio").glob("*.db")
    with sqlite3.connect(path) as database:
        found = database.execute("SELECT step, metrics, timestamp FROM metrics ORDER BY id").fetchall()

    assert len(found) == 12
    assert found[2][2].startswith("1970-01-01T00:00:01")
    assert json.loads(found[10][1]) == {"a": 1.0, "rl/attempt": 1}

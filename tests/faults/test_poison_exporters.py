"""Items that a backend cannot take: none of them stops an exporter, and their neighbors arrive."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.delivery.plugins import find_exporter
from otel_rl.export import Ended, Event, Item, Machine, Params, Row, RunInfo, Span, Table
from tests.collector import wait_for
from tests.exporters import swanlab_file, wandb_file
from tests.exporters.every import EVERY_EXPORTER, OFFLINE, needs_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HUGE, SMALL = 2**64 - 1, -(2**63)
NAMES = [
    "",
    " ",
    "\0",
    "/",
    ".",
    "..",
    "a/",
    "//",
    "a\nb",
    "%",
    "$(x)",
    "n" * 5000,
    "é" * 300,
    "_",
    "step",
    "rl/attempt",
    "rl/part",
]
NUMBERS = [HUGE, SMALL, math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0]
TIMES = [0, -1, HUGE, SMALL, 1]


def hostile() -> list[Item]:
    """Items of every type, each with one hostile value of its fields."""
    now = 10**18
    rows = [
        *(Row(step, now + 1, {"a": 1.0}) for step in (HUGE, SMALL, -1, 2**63)),
        *(Row(1, time, {"a": 1.0}) for time in TIMES),
        *(Row(1, now + n, {name: 1.0}) for n, name in enumerate(NAMES)),
        *(Row(1, now + 100 + n, {"number": value}) for n, value in enumerate(NUMBERS)),
        Row(1, now, {}),
        Row(1, now, {"a": 1.0}, attempt=0, part=HUGE, missing_ranks=(HUGE, -1), partial=True),
    ]
    machine = [Machine(step, time, {name: HUGE}) for step, time, name in zip(NUMBERS[:2], TIMES, NAMES, strict=False)]
    tables = [
        *(Table(name, 1, now, ("x",), ((1,),)) for name in NAMES),
        *(Table("t", step, now, ("x",), ((1,),)) for step in (HUGE, SMALL)),
        Table("short", 1, now, ("x", "y"), ((1,), (1, 2, 3))),
        Table("twice", 1, now, ("x", "x"), ((1, 2),)),
        Table("none", 1, now, (), ()),
        Table("cells", 1, now, ("x",), tuple((cell,) for cell in (*NUMBERS, *NAMES, None, True))),
    ]
    params = [
        Params(time, {name: HUGE, "nan": math.nan, "text": "x" * 100_000})
        for time, name in zip(TIMES, NAMES, strict=False)
    ]
    others = [
        *(Event(name, time, {name: HUGE}, step=SMALL, rank=HUGE) for time, name in zip(TIMES, NAMES, strict=False)),
        Span("s", "zz", "not hex", "", HUGE, SMALL),
        Ended(now, HUGE, "crashed", "x" * 100_000, SMALL),
    ]
    return [*rows, *machine, *tables, *params, *others]


def with_neighbours() -> list[Item]:
    """The hostile items, each with a good row behind it."""
    items: list[Item] = []
    for n, item in enumerate(hostile()):
        items += [item, Row(1000 + n, 2 * 10**18 + n * 10**6, {"good": float(n)}, attempt=HUGE if n < 0 else 0)]
    return items


def deliver(place: Path, name: str, items: Sequence[Item]) -> ExporterThread:
    """Deliver items to an exporter until it has all."""
    for directory in ("outbox", "cursors"):
        (place / "local" / directory).mkdir(parents=True)
    outbox = Outbox(place / "local" / "outbox", 1 << 30)
    outbox.append(items, b"\xc0")
    info = RunInfo("i", place.name, "n", str(place))
    exporter = ExporterThread(name, find_exporter(name), {}, info, outbox, place / "local" / "cursors")
    exporter.start()
    exporter.close_when_done()
    wait_for(lambda: not exporter.is_alive(), "the exporter does not come to its end", 200)
    outbox.close()
    assert exporter.delivered >= outbox.end
    return exporter


def jsonl(place: Path) -> list[float]:
    """Read back the good rows."""
    rows = [json.loads(line) for line in (place / "rows.jsonl").read_text().splitlines()]
    return [row["values"]["good"] for row in rows if "good" in row["values"]]


def tensorboard(place: Path) -> list[float]:
    """Read back the good rows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(place / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return [event.value for event in read.Scalars("good")]


def wandb(place: Path) -> list[float]:
    """Read back the good rows."""
    wandb_file.wait_until_written(str(place), last_alone=True)
    lines = [line for file in wandb_file.files(str(place)) for line in wandb_file.history(file)]
    return [float(line["good"]) for line in lines if "good" in line]


def mlflow(place: Path) -> list[float]:
    """Read back the good rows."""
    with sqlite3.connect(place / "mlflow.db") as database:
        return [value for (value,) in database.execute("SELECT value FROM metrics WHERE key = 'good' ORDER BY step")]


def swanlab(place: Path) -> list[float]:
    """Read back the good rows."""
    found = [one.scalar for one in swanlab_file.records(place) if one.WhichOneof("record_type") == "scalar"]
    return [scalar.value.number for scalar in found if scalar.key == "good"]


def trackio(place: Path) -> list[float]:
    """Read back the good rows."""
    from trackio.sqlite_storage import SQLiteStorage  # it keeps the first directory of a process for all runs

    with sqlite3.connect(SQLiteStorage.get_project_db_path(place.name)) as database:
        rows = [json.loads(text) for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY id")]
    return [row["good"] for row in rows if "good" in row]


READERS = [jsonl, tensorboard, wandb, mlflow, swanlab, trackio]
OTHERS = sorted({*EVERY_EXPORTER} - {read.__name__ for read in READERS})


@pytest.mark.slow
@pytest.mark.parametrize("read", [pytest.param(read, marks=needs_packages(read.__name__)) for read in READERS])
@pytest.mark.timeout(300)
def test_good_rows_arrive_between_hostile_items(
    tmp_path: Path, read: Callable[[Path], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with the items between them, every good row arrives, once."""
    for variable, value in OFFLINE.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    deliver(tmp_path, read.__name__, with_neighbours())

    assert read(tmp_path) == [float(n) for n in range(len(hostile()))]


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_packages(name)) for name in OTHERS])
def test_hostile_items_do_not_stop(tmp_path: Path, name: str) -> None:
    """Every item is taken, or put aside."""
    exporter = deliver(tmp_path, name, with_neighbours())

    assert exporter.taken + exporter.refused == len(with_neighbours())


class Picky:
    """An exporter that takes batches, and cannot bear one item."""

    batch_size = 64
    built: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    seen: ClassVar[list[int]] = []
    error: ClassVar[BaseException] = ValueError("no")

    def __init__(self, _: RunInfo) -> None:
        type(self).built += 1

    def export(self, items: Sequence[Item]) -> None:
        """Fail if item 41 is among them."""
        times = [item.time_unix_nano for item in items if isinstance(item, Params)]
        if 41 in times:
            raise self.error
        self.seen.extend(times)

    def shutdown(self) -> None:
        """Count."""
        type(self).closed += 1


@pytest.mark.parametrize(
    "error", [ValueError("no"), OverflowError("no"), KeyError("no"), UnicodeEncodeError("a", "b", 0, 1, "c")]
)
def test_one_of_a_batch_is_found_and_set_aside(tmp_path: Path, error: BaseException) -> None:
    """One of 100 items: it is in the quarantine with the reason, the others are exported in order, each once."""
    Picky.built, Picky.closed, Picky.seen, Picky.error = 0, 0, [], error
    items = [Params(n, {}) for n in range(100)]
    exporter = deliver_to(tmp_path, Picky, items)
    (line,) = (tmp_path / "local" / "quarantine.jsonl").read_text().splitlines()
    entry = json.loads(line)

    assert Picky.seen == [n for n in range(100) if n != 41]
    assert (exporter.taken, exporter.refused) == (99, 1)
    assert (entry["source"], entry["kind"], entry["value"]["time_unix_nano"]) == ("a", "Params", 41)
    assert type(error).__name__ in entry["reason"]
    assert (Picky.built, Picky.closed) == (2, 2)  # tried with a new one, after the old one was shut down


@pytest.mark.slow
def test_an_exporter_that_is_replaced_is_shut_down(tmp_path: Path) -> None:
    """Five failures that are not the item's fault: the old one is closed before the new one is built."""
    Flaky.log = []
    deliver_to(tmp_path, Flaky, [Params(n, {}) for n in range(3)])

    assert Flaky.log == ["built", "closed", "built", "closed"]


class Flaky:
    """An exporter of which the first one is broken, and even says so when it is closed."""

    batch_size = 64
    log: ClassVar[list[str]] = []

    def __init__(self, _: RunInfo) -> None:
        self.log.append("built")
        self.broken = self.log == ["built"]

    def export(self, items: Sequence[Item]) -> None:
        """Fail, or not."""
        if self.broken:
            raise ConnectionError("gone")

    def shutdown(self) -> None:
        """Close."""
        self.log.append("closed")
        if self.broken:
            raise RuntimeError("never opened")


def deliver_to(place: Path, factory: Any, items: Sequence[Item]) -> ExporterThread:
    """Deliver items to an exporter of this file."""
    for directory in ("outbox", "cursors"):
        (place / "local" / directory).mkdir(parents=True)
    outbox = Outbox(place / "local" / "outbox", 1 << 30)
    outbox.append(items, b"\xc0")
    exporter = ExporterThread("a", factory, {}, RunInfo("i", "p", "n", str(place)), outbox, place / "local" / "cursors")
    exporter.close_when_done()
    exporter.start()
    wait_for(lambda: not exporter.is_alive(), "it does not come to its end", 60)
    outbox.close()
    return exporter

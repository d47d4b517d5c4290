"""Any file of any table is harmed, and the run resumes: what is whole stays and is read, what is lost is named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import otel_rl
from otel_rl.export import (
    Ended,
    Environment,
    Event,
    Hang,
    Item,
    LogRecord,
    Machine,
    Message,
    Params,
    Process,
    Row,
    Span,
    Table,
    Trajectory,
)
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.files import File
from otel_rl.recorder.archive.tables import TABLES
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests import samples

TIMES = {"spans": "start_unix_nano", "attempts": "started_unix_nano"}
HARMED, ALL = 20, 30
"""Numbers of items when a file is harmed, and at the end."""


def items_of(number: int) -> Iterator[Item]:
    """Yield an item of each kind, whose time is the number."""
    yield Row(number, number, {"x": float(number)})
    yield Span("s", f"{number:032x}", f"{number:016x}", "", number, number + 1, {})
    yield Trajectory(0, number, number, 0, "trained", 0)
    yield Event("e", number, {"a": number}, number)
    yield Machine(number, number, {"gpu": 1.0})
    yield Params(number, {"lr": number})
    yield Process(0, "", 0, 1, "node", 7, number)
    yield Hang(0, "", 0, "node", 7, number, "generate", "", number, number, "hung", "job")
    yield Ended(number, 0, "finished")
    yield Environment(0, number, "node", {"python": "3"})
    yield Table("t", number, number, ("c",), (("a",),))
    yield Message(0, number, number, "", 0, "ab", "cd", number, "user", text="hello")
    yield LogRecord(0, number, "", 0, "node", number, "stdout", "hello")


def write(run: Path, numbers: range, dice: random.Random) -> None:
    """Write items; sometimes save, sometimes seal."""
    writer = ArchiveWriter(run / "archive" / "local", 1 << 60)
    for number in numbers:
        for item in items_of(number):
            writer.add(item)
        if dice.random() < 0.3:
            writer.save(seals=dice.random() < 0.4)
    writer.save(seals=dice.random() < 0.5)


def _with_another_name(file: File, data: bytes) -> None:
    """Write other bytes in the place of a file, with the name that fits."""
    file.path.unlink()
    files.write(file.path.parent, file.first, file.end, data)


def _of_another_table(file: File, _: random.Random) -> None:
    other = "rows" if file.path.parent.name == "steps" else "steps"
    given = next(path for path in sorted(_place_of(file).rglob("*.parquet")) if path.parent.name == other)
    _with_another_name(file, given.read_bytes())


def _of_another_run(file: File, dice: random.Random) -> None:
    """Put a file of another run in the place of a file, with the range that it has there or here."""
    other = _place_of(file).parents[2] / "other"
    write(other, range(HARMED), dice)
    given = dice.choice(sorted(other.glob(f"archive/local/**/{file.path.parent.name}/*.parquet")))
    if dice.random() < 0.5:
        file.path.unlink()
        shutil.copy(given, file.path.parent)
    else:
        _with_another_name(file, given.read_bytes())


def _of_another_schema(file: File, _: random.Random) -> None:
    table, made = pq.read_table(file.path), pa.BufferOutputStream()
    pq.write_table(
        pa.table({name: [str(value) for value in table[name].to_pylist()] for name in table.column_names}), made
    )
    _with_another_name(file, made.getvalue().to_pybytes())


def _place_of(file: File) -> Path:
    return next(path for path in file.path.parents if path.name == "local")


HARMS: dict[str, Callable[[File, random.Random], object]] = {
    "removed": lambda file, _: file.path.unlink(),
    "renamed": lambda file, _: file.path.rename(file.path.with_name(f"{file.path.stem} (1).parquet")),
    "doubled": lambda file, _: shutil.copy(file.path, file.path.with_name(f"{file.path.stem} (1).parquet")),
    "truncated": lambda file, _: file.path.write_bytes(file.path.read_bytes()[:100]),
    "damaged": lambda file, _: file.path.write_bytes(b"PAR1" * 100),
    "a directory": lambda file, _: (file.path.unlink(), file.path.mkdir()),
    "of another table": _of_another_table,
    "of another run": _of_another_run,
    "of another schema": _of_another_schema,
}
CASES = [(table.name, harm) for harm in HARMS for table in TABLES]


def covered(listed: list[File]) -> set[int]:
    """Return the numbers of the items that files have."""
    return {number for file in listed for number in range(file.first, file.end)}


@pytest.mark.parametrize("seed", samples.of(range(0, len(CASES), 9), range(len(CASES))))
def test_a_file_that_was_harmed(tmp_path: Path, seed: int) -> None:
    """All other files stay or are merged, each hole is named, and what can be read is what was written."""
    (table, harm), dice, run = CASES[seed], random.Random(seed), tmp_path / "run"
    write(run, range(HARMED), dice)
    every = files.every(run / "archive" / "local", table)
    file = dice.choice(every)
    left = [other for other in every if other != file]
    lost = set() if harm == "doubled" else covered(every) - covered(left)
    HARMS[harm](file, dice)
    is_gone = file[:2] not in {other[:2] for other in files.every(run / "archive" / "local", table)}
    whole = {path: path.read_bytes() for path in run.glob("archive/local/*/*.parquet") if path.is_file()}

    write(run, range(HARMED, ALL), dice)

    assert {path: path.read_bytes() for path in whole} == whole
    opened = otel_rl.open_run(run, attempts="all")
    named = {one.name: {n for hole in opened.holes_of(one.name) for n in range(hole.first, hole.end)} for one in TABLES}
    for one in TABLES:
        is_lost = one.name == table or ((one.name, table) == ("rows", "steps") and is_gone)  # a value needs its line
        read = opened.sql(f"SELECT {TIMES.get(one.name, 'time_unix_nano')} AS n FROM {one.name} ORDER BY n")["n"]
        assert read.tolist() == sorted({*range(ALL)} - (lost if is_lost else set())), one.name
        assert named[one.name] == (lost if is_lost else set()), one.name
    if lost and harm in ("truncated", "damaged", "of another table", "of another schema"):
        assert [path.parent.name for path in opened.damaged] == [table]

"""The list of the tables: what follows from it, and that the files keep their schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from arro3.io import read_parquet
from msgspec.structs import fields

from otel_rl.export import Hang, LogRecord, Message
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.columns import from_parquet, to_parquet
from otel_rl.recorder.archive.kept import kept
from otel_rl.recorder.archive.tables import KINDS, MESSAGES, ROWS, STEPS, TABLES, TRAJECTORIES, ArchiveTable
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.recorder.archive.test_checked_in import items

SCHEMA = Path(__file__).parents[2] / "data" / "archive" / "schema.json"
HANG = Hang(0, "", 0, "host", 7, 1, "generate", "", 1, 61, "hung", "process", culprits=("rank 1",))
MESSAGE = Message(0, 3, 4, "", 0, "0" * 32, "0" * 16, 0, "user", text="2+2=")
LOG = LogRecord(0, 4, "", 0, "node1", 0, "stderr", "CUDA error", attributes={"thread.name": "MainThread"})


def schemas(place: Path) -> dict[str, list[str]]:
    """Return the columns of the files of each table, with the types that Parquet states."""
    found = {}
    for table in TABLES:
        (file,) = files.listed(place / table.name)
        schema = read_parquet(file.path).read_all().schema
        types = [str(schema.field(name).type).strip() for name in schema.names]
        found[table.name] = [f"{name} {kind[20:-1]}" for name, kind in zip(schema.names, types, strict=True)]
    return found


def test_the_schema_of_the_files(tmp_path: Path) -> None:
    """Programs of users read the files: columns keep their name, place and type, and new ones come last."""
    writer = ArchiveWriter(tmp_path, 1 << 60)
    for item in [*items(), HANG, MESSAGE, LOG]:
        writer.add(item)
    writer.save(seals=True)

    assert schemas(tmp_path) == json.loads(SCHEMA.read_text())


def test_each_field_of_an_item_has_a_column() -> None:
    """But whether trace sampling kept a trajectory, which is known from its spans."""
    for kind, tables in KINDS.items():
        columns = [column for table in tables for column in table.columns]
        sources = {column.field or column.name for column in columns if not column.attribute}
        missing = {field.name for field in fields(kind)} - sources
        assert missing <= {"values", "sampled"}, kind


@pytest.mark.parametrize("table", [ROWS, STEPS, TRAJECTORIES], ids=lambda table: table.name)
def test_a_file_of_another_table(table: ArchiveTable) -> None:
    """It is refused, with the columns that are missing or have another type."""
    lines = kept(MESSAGES)
    lines.add([MESSAGE])
    file = bytes(to_parquet(MESSAGES, lines.batches(0, 1), compression="snappy"))

    with pytest.raises(ValueError, match=f"not a file of {table.name}: no column"):
        from_parquet(table, file)

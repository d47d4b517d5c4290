"""Files whose checksum fits and whose columns are others than those of their table: left out, with the column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.export import Ended, Event, Item, Row, Span
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.lines import LARGEST, fit
from otel_rl.recorder.archive.replay import Replay
from otel_rl.recorder.archive.writer import ArchiveWriter

Change = Callable[[pa.Table], pa.Table]


def put(name: str, values: object, kind: pa.DataType | None = None) -> Change:
    """Return a change that gives a column other values."""

    def change(table: pa.Table) -> pa.Table:
        column = pa.array([values] * table.num_rows, kind)
        return table.set_column(table.schema.get_field_index(name), name, column)

    return change


def left_out(name: str) -> Change:
    """Return a change that leaves a column out."""
    return lambda table: table.drop_columns([name])


CASES = {
    "text for a number": ("rows", put("step", "1"), "column step is not of type int64"),
    "number for a text": ("rows", put("name", 1), "column name is not of type text"),
    "nested": ("events", put("name", {"a": [{"b": "x"}]}), "column name is not of type text"),
    "bytes": ("events", put("name", b"\xff\xfe"), "column name is not of type text"),
    "no column": ("rows", left_out("value"), "no column value"),
    "missing values": ("steps", put("attempt", None, pa.int64()), "column attempt has missing values"),
    "no JSON": ("events", put("attributes", "{["), "column attributes has a value that events cannot have"),
    "too deep": (
        "events",
        put("attributes", '{"a":' * 5000 + "1" + "}" * 5000),
        "column attributes has a value that nests",
    ),
    "a list for an object": ("events", put("attributes", "[1]"), "column attributes has a value"),
    "objects for numbers": ("steps", put("missing_ranks", '[1, {"a": null}]'), "column missing_ranks has a value"),
    "an unknown outcome": ("ends", put("outcome", "exploded"), "column outcome has a value"),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run directory with an item of some kinds."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    for item in (Row(1, 1, {"x": 1.0}), Event("e", 1, {"a": 1}, 1), Ended(2, 0, "finished")):
        writer.add(item)
    writer.save(seals=True)
    return tmp_path


def change(run: Path, table: str, by: Change) -> Path:
    """Change the file of a table, and give it the name that fits; return it."""
    place = run / "archive" / "local" / table
    (file,) = files.listed(place)
    made = pa.BufferOutputStream()
    pq.write_table(by(pq.read_table(file.path)), made)
    file.path.unlink()
    return files.write(place, file.first, file.end, made.getvalue().to_pybytes())


@pytest.mark.parametrize("case", CASES)
def test_a_file_of_another_schema(run: Path, case: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is left out, counts as damaged, and one sentence names the file and the column."""
    table, by, sentence = CASES[case]
    path = change(run, table, by)
    opened = otel_rl.open_run(run)

    assert opened.damaged == [path]
    assert len(opened.sql(f"SELECT * FROM {table}")) >= 0
    (message,) = {record.getMessage() for record in caplog.records}
    assert str(path) in message
    assert sentence in message


@pytest.mark.parametrize("case", CASES)
def test_a_replay_of_another_schema(run: Path, case: str) -> None:
    """It does not raise, and counts what is missing."""
    table, by, _ = CASES[case]
    change(run, table, by)
    replay = Replay(run / "archive" / "local", {}, {})

    assert len([*replay]) + replay.missing == 3


@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("table", ["rows", "steps", "events"])
@pytest.mark.parametrize("column", ["step", "time_unix_nano"])
def test_a_line_with_a_number_out_of_range(
    run: Path, table: str, column: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It alone is left out, with a warning; the other lines of its file are read and delivered."""
    change(run, table, lambda lines: pa.concat_tables([lines, put(column, number)(lines)]))
    opened = otel_rl.open_run(run)

    assert opened.rows()["step"].tolist() == [1]
    assert opened.sql(f"SELECT {column} FROM {table}")[column].tolist() == [1]
    assert opened.damaged == []
    (message,) = {record.getMessage() for record in caplog.records}
    assert f"its column {column} has a number that is out of range; such lines are left out" in message
    assert {type(item) for *_, item in Replay(run / "archive" / "local", {}, {})} == {Row, Event, Ended}


@pytest.mark.parametrize("number", [1 << 62, LARGEST, LARGEST + 1, (1 << 63) - 1, (1 << 64) - 1, -LARGEST - 1])
def test_a_number_that_the_writer_takes(tmp_path: Path, number: int) -> None:
    """Readers take it too: each other number is refused before it is in a file."""
    spans = [
        Span("x", "0" * 32, "0" * 16, "", 1, 2, {semconv.RANK: number}),
        Span("x", "0" * 32, "0" * 16, "", 1, number),
    ]
    of_time: list[Item] = [Row(1, number, {"x": 1.0}), Event("e", number, {}), Ended(number, 0, "finished"), *spans]
    numbered: list[Item] = [
        Row(number, 1, {"x": 1.0}),
        Event("e", 1, {}, number),
        Event("e", 1, {}, 1, number),
        *of_time,
    ]
    taken = [item for item in numbered if fit([item])]
    assert len(taken) == (len(numbered) if abs(number) <= LARGEST else 1)  # an attribute has room elsewhere
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    for item in taken:
        writer.add(item)
    writer.save(seals=True)
    opened = otel_rl.open_run(tmp_path)

    assert opened.damaged == []
    assert sum(len(opened.sql(f"SELECT * FROM {name}")) for name in ("steps", "events", "ends", "spans")) == len(taken)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(500) + b"PAR1", b"PAR1" + b"\x7f" * 500 + b"PAR1"])
def test_a_file_that_is_not_parquet(run: Path, data: bytes) -> None:
    """Neither a reader nor a replay raises."""
    place = run / "archive" / "local" / "rows"
    (file,) = files.listed(place)
    file.path.unlink()
    path = files.write(place, file.first, file.end, data)

    assert otel_rl.open_run(run).damaged == [path]
    assert len([*Replay(run / "archive" / "local", {}, {})]) == 2


def test_files_of_otel_rl(run: Path) -> None:
    """They have their schema."""
    assert otel_rl.open_run(run).damaged == []


def test_a_newer_file(run: Path) -> None:
    """A column that this version does not know is not a fault."""
    change(run, "rows", lambda table: table.append_column("newer", table.column("step")))

    assert otel_rl.open_run(run).rows()["value"].tolist() == [1.0]


@pytest.mark.parametrize("name", ["r[1]", "r*", "r?x", "new\nline", "caf\udce9", "back\\slash", "it's"])
def test_a_path_that_is_not_a_pattern(run: Path, tmp_path: Path, name: str) -> None:
    """Its files alone are read, by queries of others too."""
    decoys = {"r[1]": "r1", "r*": "rZZ", "r?x": "rYx"}
    for other in filter(None, (decoys.get(name), name)):
        writer = ArchiveWriter(tmp_path / other / "archive" / "local", 1 << 60)
        writer.add(Row(1, 1, {"x": 7.0 if other == name else 1.0}))
        writer.save(seals=True)
    opened = otel_rl.open_run(tmp_path / name)

    assert opened.rows()["value"].tolist() == [7.0]
    assert opened.select("SELECT value FROM rows", 5)["value"].tolist() == [7.0]
    assert opened.copy("SELECT value FROM rows", tmp_path / name / "rows.csv", "FORMAT csv") == 1
    assert (tmp_path / name / "rows.csv").read_text().split() == ["value", "7.0"]


def test_names_in_a_notebook(run: Path) -> None:
    """Control characters and those that turn the order of text around are escaped."""
    (run / "run.json").write_text('{"project": "a\\u202eb", "name": "c\\u001b[2Jd"}')
    shown = otel_rl.open_run(run)._repr_html_()

    assert "\u202e" not in shown
    assert "\x1b" not in shown

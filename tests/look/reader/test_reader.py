"""The public reader: what it returns is what was written, whatever happened to the run or to its files."""

from __future__ import annotations

import logging
import math
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl import semconv
from otel_rl.export import (
    Environment,
    Event,
    Hang,
    Item,
    Machine,
    Message,
    Params,
    Process,
    Row,
    RunInfo,
    Span,
    Trajectory,
)
from otel_rl.look.reader.snapshot import Folder, Snapshot
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.columns import from_parquet, to_parquet
from otel_rl.recorder.archive.tables import MESSAGES, ROWS
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.journal.ids import step_ids
from otel_rl_exporters.jsonl import JsonlExporter
from tests.look.insight.conversations import asked, chat
from tests.processes import run_python

NO_LIMIT = 1 << 60
ODD_NAN = struct.unpack("d", struct.pack("Q", 0x7FF8000000000123))[0]
VALUES = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, ODD_NAN]) | st.floats()


def archived(directory: Path, items: Iterable[Item], machine: str = "local", saves: Sequence[bool] = ()) -> Path:
    """Return a run directory with the items of a machine; after each, it is saved if `saves` says so."""
    writer = ArchiveWriter(directory / ARCHIVE / machine, NO_LIMIT)
    for number, item in enumerate(items):
        writer.add(item)
        if number < len(saves) and saves[number]:
            writer.save()
    writer.save(seals=not saves)
    return directory


def bits(value: float) -> bytes:
    return struct.pack("d", value)


def read(reader: Any, **options: Any) -> dict[tuple[str, int, str], bytes]:
    """Return the bits of values by machine, step and name; each is there once."""
    found = reader.rows(**options)
    keys = [*zip(found["machine"], found["step"].tolist(), found["name"], strict=True)]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, map(bits, found["value"].tolist()), strict=True))


def history(rows: dict[str, list[Row]]) -> dict[tuple[str, int, str], bytes]:
    """Return what the two sentences say of the rows of machines: an oracle.

    From the first step of an attempt on, the rows of all earlier attempts are void. Late rows are merged into the row
    of their step and never replace a value that left in time.
    """
    every = [row for of_machine in rows.values() for row in of_machine]
    found: dict[tuple[str, int, str], bytes] = {}
    for machine, of_machine in rows.items():
        kept = [
            row
            for row in of_machine
            if not any(
                other.attempt > row.attempt and not other.late and (other.begins or other.step) <= row.step
                for other in every
            )
        ]
        in_time = [row for row in kept if not row.late]
        late = sorted((row for row in kept if row.late), key=lambda row: (row.attempt, row.part))
        for row in chain(late, in_time):
            found |= {(machine, row.step, name): bits(value) for name, value in row.values.items()}
    return found


@st.composite
def trainings(draw: st.DrawFn) -> dict[str, list[Row]]:
    """Return the rows of 1 to 16 machines: attempts that go on from any step so far, with late parts."""
    names = ["loss", "reward", "time/step", "weiß 'x'", "[0]*"]
    machines = [f"node{n}" for n in range(draw(st.integers(1, 16)))]
    found: dict[str, list[Row]] = {machine: [] for machine in machines}
    at, every = 1, draw(st.integers(1, 3))
    for attempt in range(draw(st.integers(1, 3))):
        begin = at = draw(st.integers(1, at))
        for step in range(at, at + draw(st.integers(1, 6)) * every, every):
            ends, begins = step + every - 1, step if every > 1 else None
            for rows in found.values():
                if draw(st.integers(0, 9)):
                    values = draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=4))
                    ids = step_ids("run", attempt, ends)
                    rows.append(Row(ends, attempt + 1, values, attempt, begins=begins, trace_id=f"{ids.trace_id:032x}"))
            at = ends + 1
        for rows in found.values():
            for part in range(1, 1 + draw(st.integers(0, 3))):
                step = draw(st.integers(max(1, begin - 3), at - 1))
                values = draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=4))
                rows.append(Row(step, 9, values, attempt, late=True, part=part))
    return found


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(trainings(), st.data())
def test_the_last_attempt_wins(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, list[Row]], data: st.DataObject
) -> None:
    """Over attempts, late parts, windows, names that change and machines, in young and sealed files, bit for bit."""
    directory = tmp_path_factory.mktemp("run")
    (directory / ARCHIVE).mkdir()
    for machine, of_machine in rows.items():
        saves = data.draw(st.lists(st.booleans(), max_size=len(of_machine)))
        archived(directory, of_machine, machine, saves)
    reader = otel_rl.open_run(directory)
    expected = history(rows)

    assert read(reader) == expected
    assert read(reader, names=["loss", "time/*"]) == {
        key: value for key, value in expected.items() if key[2] in ("loss", "time/step")
    }
    assert read(reader, steps=range(2, 9, 3)) == {
        key: value for key, value in expected.items() if key[1] in range(2, 9, 3)
    }
    assert len(otel_rl.open_run(directory, attempts="all").rows()) == sum(
        len(row.values) for of_machine in rows.values() for row in of_machine
    )
    assert reader.damaged == []
    assert reader.holes == []


@settings(max_examples=10, deadline=None)
@given(trainings())
def test_a_run_without_an_archive(tmp_path_factory: pytest.TempPathFactory, rows: dict[str, list[Row]]) -> None:
    """It is read from `rows.jsonl` and `machine.jsonl`, with the same columns, also when they grow."""
    directory, of_machine = tmp_path_factory.mktemp("run"), rows["node0"]
    exporter = JsonlExporter(RunInfo("run", "p", "run", str(directory), {}))
    (directory / "archive" / "node0").mkdir(parents=True)  # as an agent that archives nothing makes it
    (directory / "archive" / "node0" / "now.json").write_text("{}")
    half = len(of_machine) // 2
    exporter.export(of_machine[:half])
    reader = otel_rl.open_run(directory)
    expected = history({"local": of_machine})

    assert len(read(reader)) == len(history({"local": of_machine[:half]}))
    exporter.export([*of_machine[half:], Machine(1, 2, {"gpu": 0.5})])
    exporter.shutdown()
    found = read(reader)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or math.isnan(*struct.unpack("d", value))  # JSON has one NaN
    assert reader.rows().columns == [*(column.name for column in ROWS.columns), "machine"]
    assert [*reader.measurements("g*")["value"]] == [0.5]


def test_lines_that_are_not_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are left out and counted once; a torn line at the end is being written."""
    good = '{"step": 0, "time_unix_nano": 1, "values": {"x": 1}}'
    bad = ["{", "[]", "7", '{"step": 0}', good.replace("1}", '"much"}'), good.replace("0,", "true,", 1)]
    bad += [good.replace("0,", f"{2**70},", 1), good.replace("1}", "9" * 400 + "}"), good.replace("x", "\\ud800")]
    (tmp_path / "rows.jsonl").write_text("\n".join([*bad, good, good, good[:20]]))
    with caplog.at_level(logging.WARNING):
        found = otel_rl.open_run(tmp_path).rows()

    assert [*found["value"]] == [1.0]
    assert caplog.messages == [f"{tmp_path / 'rows.jsonl'}: skipped 9 lines that are not rows"]


def test_there_is_no_run(tmp_path: Path) -> None:
    """The error names the directory; a wrong argument names what is allowed."""
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        otel_rl.open_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        otel_rl.open_runs(tmp_path / "**")
    archived(tmp_path, [Row(0, 1, {})])
    with pytest.raises(ValueError, match="attempts='last'"):
        otel_rl.open_run(tmp_path, attempts="last")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="steps=range"):
        otel_rl.open_run(tmp_path).rows(steps=range(9, 0, -1))
    with pytest.raises(KeyError, match=r"columns are .*value"):
        otel_rl.open_run(tmp_path).rows()["values"]


def a_resumed_run() -> list[Item]:
    """Return the items of a run whose second attempt began again at step 2; step 3 of the first one has no row."""
    found: list[Item] = []
    for attempt, steps in enumerate([range(4), range(2, 5)]):
        found.append(Process(attempt, "", 0, 1, "host", 7, 10 + attempt))
        found.append(Process(attempt, "", 0, 1, "host", 7, 10 + attempt, ended_unix_nano=99, outcome="finished"))
        found.append(Params(10 + attempt, {"lr": 0.1 * (attempt + 1), f"only/{attempt}": math.nan}))
        found.append(Environment(attempt, 10, "host", {"package.torch": f"2.{attempt}"}))
        for step in steps:
            ids = step_ids("the-id", attempt, step)
            trace_id, span_id = f"{ids.trace_id:032x}", f"{ids.span_id:016x}"
            own = f"{attempt + 1:016x}{step + 1:016x}"
            if (attempt, step) != (0, 3):
                found.append(Row(step, 100 * attempt + step, {"loss": float(attempt)}, attempt, trace_id=trace_id))
            root = {semconv.RUN_ATTEMPT: attempt, semconv.LOOP_ITERATION: step}
            found.append(Span("rl.loop", trace_id, span_id, "", 1, 9, root))
            phase = {semconv.LOOP_ITERATION: step, semconv.PHASE: "generate"}
            found.append(Span("rl.phase", trace_id, f"{attempt:08x}{step:08x}", span_id, 1, 5, phase))
            found.append(Span("rl.trajectory", own, span_id, "", 1, 5, {semconv.LOOP_ITERATION: step}))
            found.append(Event("saved", 5, {"path": f"{attempt}/{step}"}, step, 0, trace_id, span_id))
            found.append(Trajectory(attempt, step, 5, 0, "trained", 1, own, span_id, 0.5))
    return [*found, Event("outside", 5, {})]


def test_the_last_line_of_a_hang_is_valid(tmp_path: Path) -> None:
    """One line has the end and the cause; a hang of the same process in the same phase later on is another one."""
    first = Hang(0, "", 1, "host", 7, 3, "generate", "", 10, 70, "hung", "process")
    more = msgspec.structs.replace(first, time_unix_nano=80, scope="job", cause="dead", culprits=("rank 0",))
    last = msgspec.structs.replace(more, time_unix_nano=90, ended_unix_nano=90, ending="resumed")
    again = msgspec.structs.replace(first, started_unix_nano=95, time_unix_nano=155)
    reader = otel_rl.open_run(archived(tmp_path, [first, more, last, again]))

    query = "SELECT started_unix_nano, ended_unix_nano, scope, culprits FROM hangs ORDER BY started_unix_nano"
    found = reader.sql(query)
    assert [*zip(*(found[name].tolist() for name in found), strict=True)] == [
        (10, 90, "job", '["rank 0"]'),
        (95, None, "process", None),
    ]


@pytest.mark.parametrize("is_known", [True, False])
def test_void_steps_are_left_out_of_every_table(tmp_path: Path, *, is_known: bool) -> None:
    """Spans, events and trajectories too; if the id of the run is known, also of a step that died without a row."""
    if is_known:
        (tmp_path / "run.json").write_text('{"id": "the-id", "project": "p", "name": "n"}')
    reader = otel_rl.open_run(archived(tmp_path, a_resumed_run()))
    every = otel_rl.open_run(tmp_path, attempts="all")
    valid = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]
    left = [] if is_known else [3]

    found = reader.rows("loss")
    assert [*zip(found["step"], found["value"], strict=True)] == valid
    found = reader.trajectories()
    assert [*zip(found["step"], found["attempt"], strict=True)] == valid
    assert sorted(reader.spans("generate")["step"]) == sorted([0, 1, 2, 3, 4, *left])
    assert sorted(every.spans("generate")["step"]) == [0, 1, 2, 2, 3, 3, 4]
    assert sorted(reader.spans(["rl.loop", "rl.traj*"])["step"]) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(reader.events("saved", steps=(0, 9))) == 5 + len(left)
    assert len(reader.events("outside")) == 1
    assert len(every.rows()) == 6


def test_parameters_attempts_and_environment(tmp_path: Path) -> None:
    """The latest value of each parameter, the last line of each process, the environment of the last attempt."""
    reader = otel_rl.open_run(archived(tmp_path, a_resumed_run()))

    parameters = reader.parameters
    assert math.isnan(parameters.pop("only/0"))
    assert math.isnan(parameters.pop("only/1"))
    assert parameters == {"lr": 0.2}
    assert reader.environment == {"package.torch": "2.1"}
    assert [*reader.attempts["outcome"]] == ["finished", "finished"]
    assert otel_rl.open_run(archived(tmp_path / "empty", [Row(0, 1, {})])).parameters == {}


def test_every_library_sees_the_same(tmp_path: Path) -> None:
    """NumPy, pandas, Polars, PyArrow and DuckDB, missing values and 64-bit integers included."""
    values = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0, "tiny": 5e-324}
    spans = [
        Span("s", "1" * 32, f"{n:016x}", "", 2**62 + n, 2**62 + 9, {semconv.RANK: n} if n else {}) for n in range(3)
    ]
    reader = otel_rl.open_run(archived(tmp_path, [Row(3, 4, values), *spans]))
    rows, found = reader.rows(), reader.spans()

    in_duckdb = reader.sql("SELECT value FROM rows ORDER BY place")["value"]
    columns = [rows["value"], rows.to_pandas()["value"].to_numpy(), rows.to_polars()["value"].to_numpy(), in_duckdb]
    columns.append(rows.to_arrow()["value"].to_numpy())
    assert [column.tobytes() for column in columns] == [np.array(list(values.values())).tobytes()] * 5
    assert found["rank"].tolist() == found.to_arrow()["rank"].to_pylist() == [None, 1, 2]
    assert found.to_polars()["rank"].to_list() == [None, 1, 2]
    assert found.to_pandas()["rank"].isna().tolist() == [True, False, False]
    assert found["start_unix_nano"].tolist() == [2**62, 2**62 + 1, 2**62 + 2]
    assert found.to_pandas()["start_unix_nano"].tolist() == found["start_unix_nano"].tolist()


def test_a_result_is_drawn(tmp_path: Path) -> None:
    """Printed, it is a table, without any other library."""
    archived(tmp_path, [Row(n, n, {"x": n / 2}) for n in range(3)])
    drawn = str(otel_rl.open_run(tmp_path).sql("SELECT step, value FROM rows"))

    assert [line.split("│")[1:3] for line in drawn.splitlines() if "1.0" in line] == [["     2 ", "    1.0 "]]


def test_a_library_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        otel_rl.open_run(archived(tmp_path, [Row(0, 1, {})])).rows().to_polars()


@pytest.mark.slow
def test_ray_data_reads_sealed_files(tmp_path: Path) -> None:
    """Ray Data needs nothing of otel-rl."""
    ray = pytest.importorskip("ray")
    archived(tmp_path, [Row(n, n, {"loss": n / 7}) for n in range(50)])
    ray.init(num_cpus=1, include_dashboard=False)
    try:
        lines = ray.data.read_parquet(str(tmp_path / "archive" / "local" / "rows")).take_all()
    finally:
        ray.shutdown()

    found = otel_rl.open_run(tmp_path).rows("loss")
    assert sorted((line["step"], line["value"]) for line in lines) == [*zip(found["step"], found["value"], strict=True)]


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    """Pandas, PyArrow and Polars are loaded when a table is asked for in their form, and not before."""
    archived(tmp_path, [Row(0, 1, {"x": 1.0})])
    script = f"""
import sys, otel_rl
otel_rl.open_run({str(tmp_path)!r}).rows()["value"]
print([name for name in ("pandas", "pyarrow", "polars", "opentelemetry.sdk", "torch") if name in sys.modules])
"""
    assert run_python(script, tmp_path) == "[]\n"


def test_sql(tmp_path: Path) -> None:
    """Names of tables in any case, expressions of DuckDB; its errors are passed on. The result stays as it is."""
    reader = otel_rl.open_run(archived(tmp_path, [Row(n, n, {"x": float(n)}) for n in range(4)], saves=[True] * 4))
    query = "WITH x AS (FROM Rows) SELECT max(x.value) AS top, [1, 2] AS list FROM x JOIN steps USING (step)"
    found = reader.sql(query)
    archived(tmp_path, [Row(9, 9, {"x": 9.0})])

    assert (found.columns, found["top"].tolist(), found["list"].tolist()) == (["top", "list"], [3.0], [[1, 2]])
    assert reader.sql(query)["top"].tolist() == [9.0]
    with pytest.raises(duckdb.Error, match="nothing"):
        reader.sql("SELECT * FROM nothing")


def test_several_runs(tmp_path: Path) -> None:
    """They have three more columns; a resumed run, one without an archive and odd names of directories included."""
    odd, plain = tmp_path / "p" / "a[1]*=x", tmp_path / "p" / "c"
    odd.mkdir(parents=True)
    (odd / "run.json").write_text('{"id": "the-id", "project": "q", "name": "n"}')
    archived(odd, a_resumed_run())
    archived(tmp_path / "p" / "b", [Row(0, 1, {"loss": 5.0}), Params(1, {"lr": 3.0})])
    plain.mkdir()
    exporter = JsonlExporter(RunInfo("c", "p", "c", str(plain), {}))
    exporter.export([Row(0, 1, {"loss": 6.0})])
    exporter.shutdown()
    reader = otel_rl.open_runs(f"{tmp_path}/**")

    found = reader.rows("loss")
    assert found.columns[:3] == ["run", "project", "run_name"]
    assert [*zip(found["run"], found["project"], found["run_name"], found["value"], strict=True)] == [
        ("b", "p", "b", 5.0),
        ("c", "p", "c", 6.0),
        *[("the-id", "q", "n", value) for value in (0.0, 0.0, 1.0, 1.0, 1.0)],
    ]
    assert reader.parameters["b"] == {"lr": 3.0}
    assert reader.environment["the-id"] == {"package.torch": "2.1"}
    assert [*otel_rl.open_runs([plain, tmp_path / "p" / "b"]).sql("FROM rows SELECT sum(value) AS x")["x"]] == [11.0]


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_file(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    """It is named in one warning and left out; the reader says which items are missing."""
    rows = [Row(n, n, {"x": float(n)}) for n in range(3)]
    archived(tmp_path, rows, saves=[True] * 3)
    path = files.listed(tmp_path / "archive" / "local" / "tail" / "rows")[1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "flipped" else data[:-9])
    reader = otel_rl.open_run(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = [reader.rows("x")["step"].tolist() for _ in range(2)]

    assert found == [[0, 2]] * 2
    assert [str(path) in message for message in caplog.messages] == [True]
    assert reader.damaged == [path]
    assert [tuple(hole) for hole in reader.holes] == [("local", "rows", 1, 2)]


def test_damage_brings_no_void_rows_back(tmp_path: Path) -> None:
    """If the lines of `steps` of the second attempt are lost, its values still show that it began."""
    rows = [Row(1, 1, {"x": 1.0}), Row(2, 2, {"x": 2.0}), Row(2, 3, {"x": 3.0}, attempt=1)]
    archived(tmp_path, rows, saves=[True] * 3)
    files.listed(tmp_path / "archive" / "local" / "tail" / "steps")[2].path.write_bytes(b"")

    assert otel_rl.open_run(tmp_path).rows("x")["value"].tolist() == [1.0, 3.0]


def test_files_of_other_versions(tmp_path: Path) -> None:
    """A column that an older version did not write is missing in its lines; one of a newer version is left out."""
    archived(tmp_path, [Row(1, 1, {"x": 1.0}), Row(2, 2, {"x": 2**60 + 1})], saves=[True] * 2)
    older, newer = files.listed(tmp_path / "archive" / "local" / "tail" / "rows")
    of_older, of_newer = (from_parquet(ROWS, intact.read(file)) for file in (older, newer))
    of_older = of_older.select([name for name in of_older.column_names if name != "exact"])
    of_newer = of_newer.append_column("newer", of_newer.column("step"))
    for file, batch in ((older, of_older), (newer, of_newer)):
        file.path.unlink()
        files.write(file.path.parent, file.first, file.end, to_parquet(ROWS, [batch], compression="snappy"))
    found = otel_rl.open_run(tmp_path).rows("x")

    assert found.columns == [*(column.name for column in ROWS.columns), "machine"]
    assert found["exact"].tolist() == [None, str(2**60 + 1)]
    assert found["value"].tolist() == [1.0, 2.0**60]


def test_a_writer_that_was_killed_between_two_tables(tmp_path: Path) -> None:
    """Values without their line of `steps` are left out: nothing says which history they are part of."""
    archived(tmp_path, [Row(n, n, {"x": float(n)}) for n in range(3)], saves=[True] * 3)
    files.listed(tmp_path / "archive" / "local" / "tail" / "steps")[2].path.unlink()

    assert otel_rl.open_run(tmp_path).rows("x")["step"].tolist() == [0, 1]


def test_a_run_that_is_written(tmp_path: Path) -> None:
    """While files are written, sealed and deleted, a reader sees each item once, and never fewer than before."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", NO_LIMIT)
    done = threading.Event()

    def write() -> None:
        for n in range(400):
            writer.add(Row(n, n, {"x": float(n), "y": 0.0}))
            writer.add(Span("rl.phase", f"{n:032x}", f"{n:016x}", "", n, n + 1))
            if n % 5 == 4:
                writer.save(seals=n % 20 == 19)
                time.sleep(0.02)  # an agent saves once a second
        done.set()

    (tmp_path / "archive").mkdir()
    thread = threading.Thread(target=write)
    thread.start()
    reader, seen, is_last = otel_rl.open_run(tmp_path), 0, False
    while not is_last:
        is_last = done.is_set()
        found, spans = reader.rows("x")["step"].tolist(), reader.spans()["start_unix_nano"].tolist()
        assert found == list(range(len(found)))
        assert spans == list(range(len(spans)))
        assert len(found) >= seen
        seen = len(found)
    thread.join()
    assert seen == 400


def test_a_file_that_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the files are sealed after they were listed, they are listed again."""
    archived(tmp_path, [Row(n, n, {"x": float(n)}) for n in range(3)], saves=[True] * 3)
    reader, every, left = otel_rl.open_run(tmp_path), files.every, [1]

    def seals_behind(place: Path, table: str) -> list[files.File]:
        found = every(place, table)
        if left:
            left.clear()
            ArchiveWriter(place, NO_LIMIT).save(seals=True)
        return found

    monkeypatch.setattr(files, "every", seals_behind)
    assert reader.rows("x")["step"].tolist() == [0, 1, 2]
    assert not left


def test_a_value_for_an_earlier_step_voids_nothing(tmp_path: Path) -> None:
    """An attempt that marks steps begins with the first one that it began; an attempt that only logs, with any."""
    first = [Row(n, n, {"x": float(n)}, trace_id=f"{n:032x}") for n in range(10)]
    second = [Row(n, n, {"x": -1.0}, attempt=1, trace_id=f"{n:032x}") for n in (8, 9)]
    stray = Row(3, 20, {"eval": 0.5}, attempt=1)
    archived(tmp_path, [*first, stray, *second])
    archived(tmp_path / "logs", [*(Row(n, n, {"x": 0.0}) for n in range(10)), stray])
    found = otel_rl.open_run(tmp_path).rows("x")

    assert dict(zip(found["step"].tolist(), found["value"].tolist(), strict=True)) == {
        **{n: float(n) for n in range(8)},
        8: -1.0,
        9: -1.0,
    }
    assert otel_rl.open_run(tmp_path / "logs").rows("x")["step"].tolist() == [0, 1, 2]


def test_the_newest_file_of_rows_is_gone(tmp_path: Path) -> None:
    """The lines of `steps` say that it was there: a hole."""
    archived(tmp_path, [Row(n, n, {"x": float(n)}) for n in range(4)], saves=[False, True, False, True])
    place = tmp_path / "archive" / "local"
    files.of_table(place, ROWS.name)[-1].path.unlink()
    reader = otel_rl.open_run(tmp_path)

    assert reader.rows()["step"].tolist() == [0, 1]
    assert [(hole.table, hole.first, hole.end) for hole in reader.holes] == [("rows", 2, 4)]


def test_a_run_directory_that_looks_like_a_partition(tmp_path: Path) -> None:
    """The name of a folder does not replace a column, as DuckDB would have it."""
    archived(tmp_path / "step=9" / "lr=1", [Row(1, 1, {"x": 1.0})])

    found = otel_rl.open_run(tmp_path / "step=9" / "lr=1").rows()
    assert (found["step"].tolist(), "lr" in found.columns) == ([1], False)


def test_the_working_directory_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was opened by a relative path is still read."""
    archived(tmp_path / "run", [Row(0, 0, {"x": 1.0})])
    monkeypatch.chdir(tmp_path)
    reader = otel_rl.open_run("run")
    monkeypatch.chdir("/")

    assert len(reader.rows()) == 1


def test_each_run_is_read_once_and_apart(tmp_path: Path) -> None:
    """A link to a run adds nothing; runs with one id have different labels; a path without a run is an error."""
    for project in ("a", "b"):
        archived(tmp_path / project / "same", [Row(0, 0, {"x": 1.0})])
        (tmp_path / project / "same" / "run.json").write_text(f'{{"id": "same", "project": "{project}"}}')
    (tmp_path / "a" / "latest").symlink_to("same")
    (tmp_path / "runs[2]").symlink_to("a")
    found = otel_rl.open_runs(tmp_path).rows()

    assert found["run"].tolist() == ["a/same", "b/same"]
    assert otel_rl.open_runs(tmp_path / "runs[2]").rows()["run"].tolist() == ["same"]
    with pytest.raises(FileNotFoundError, match="tpyo"):
        otel_rl.open_runs([tmp_path / "a", tmp_path / "tpyo"])


def test_damage_after_the_first_read(tmp_path: Path) -> None:
    """A file that is replaced is checked again."""
    archived(tmp_path, [Row(0, 0, {"x": 1.0})])
    (file,) = files.of_table(tmp_path / "archive" / "local", ROWS.name)
    before = len(otel_rl.open_run(tmp_path).rows())
    content = bytearray(file.path.read_bytes())
    content[len(content) // 2] ^= 1
    file.path.with_name("new").write_bytes(content)
    file.path.with_name("new").replace(file.path)
    reader = otel_rl.open_run(tmp_path)

    assert (before, len(reader.rows()), reader.damaged) == (1, 0, [file.path])


def test_messages_of_other_steps_are_not_read(tmp_path: Path) -> None:
    """Files of messages say which steps they have: a query about some steps opens no other file."""
    place = tmp_path / "archive" / "local"
    writer = ArchiveWriter(place, 1 << 60)
    for step in (3, 4, 7):
        writer.add(*(item for item in chat(step, 0, *asked("q", f"step {step}")) if isinstance(item, Message)))
        writer.save(seals=True)
    folders = [Folder(0, "local", place)]

    wanted = ([range(4, 5)], 1), ([range(3), range(3, 4), range(5, 9)], 2), ([range(5, 7)], 0), (None, 3)
    for steps, number in wanted:
        assert Snapshot(folders, steps).lines(MESSAGES).count(".parquet") == number
    (tmp_path / "run.json").write_text("{}")
    found = otel_rl.open_run(tmp_path).sql("SELECT text FROM messages WHERE author = 'assistant'", steps=[range(4, 5)])
    assert found["text"].tolist() == ["step 4"]
    assert otel_rl.open_run(tmp_path).steps_of_messages() == [range(3, 4), range(4, 5), range(7, 8)]


def test_large_queries_leave_the_working_directory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that needs more memory than there is uses the private directory of the user, and others use none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reader = otel_rl.open_run(archived(tmp_path / "run", [Row(0, 0, {"x": 1.0})]))
    reader._connection.execute("SET memory_limit = '40MB'; SET threads = 1")
    place = "SELECT current_setting('temp_directory') AS place"

    assert reader.sql(place)["place"][0] == ""
    assert len(reader.sql("SELECT i, hash(i) AS h FROM range(4000000) AS t(i) ORDER BY h LIMIT 3000000")) == 3_000_000
    spilled = Path(reader.sql(place)["place"][0])
    assert spilled.parent.parent == tmp_path
    assert spilled.parent.stat().st_mode & 0o777 == 0o700

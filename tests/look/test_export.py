"""A run in files of other programs: what these read equals what was recorded."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.cli import main
from otel_rl.export import Event, Row, Span, Trajectory
from otel_rl.look.export import perfetto, tables
from otel_rl.look.export.perfetto import TraceLanes
from otel_rl.look.reader.runs import open_run
from otel_rl.recorder.archive.tables import TABLES
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.hostile import HOSTILE
from tests.look.recorded import Shape, record

SHAPE = Shape(steps=8, resumed_at=6, nan_from=4, workers=2, gpus=True, texts=True, hostile=HOSTILE[0])


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run that was resumed, with NaN and hostile names."""
    return record(tmp_path / "run", SHAPE)


def events_in(file: Path) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return answer


def nanoseconds(text: str) -> int:
    whole, _, rest = text.partition(".")
    return int(whole) * 1000 + int(rest)


def test_the_wide_table_has_each_value(recorded: Path, tmp_path: Path) -> None:
    """Of the valid history, exactly; a line for each step, a column for each metric."""
    tables.write(open_run(recorded), tmp_path / "csv", "csv", None)
    with (tmp_path / "csv" / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    rows = open_run(recorded).rows()
    values = {(int(line["step"]), name): float(text) for line in lines for name, text in line.items() if text}

    assert [int(line["step"]) for line in lines] == list(range(SHAPE.steps))
    for step, attempt, name, value in zip(rows["step"], rows["attempt"], rows["name"], rows["value"], strict=True):
        assert repr(values[step, name]) == repr(float(value))
        assert lines[step]["attempt"] == str(attempt)


def test_safe_tables_have_no_formulas(tmp_path: Path) -> None:
    """With `--safe`, no cell begins as a spreadsheet's formula, but for numbers; nothing else changes."""
    run = tmp_path / "run"
    writer = ArchiveWriter(run / "archive" / "local", 1 << 60)
    for item in (
        Row(0, 1, {"=HYPERLINK(1)": -1.0, "x": 2.0}),
        Event("@SUM(A1)", 1, {}),
        Event("-1+cmd", 2, {}),
        Event("x", 3, {}),
    ):
        writer.add(item)
    writer.save()

    answer = CliRunner().invoke(main, ["export", str(run), "--to", "csv", "--safe", "-o", str(tmp_path / "csv")])

    assert answer.exit_code == 0
    with (tmp_path / "csv" / "rows.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["step", "attempt", "time_unix_nano", "'=HYPERLINK(1)", "x"],
            ["0", "0", "1", "-1.0", "2.0"],
        ]
    with (tmp_path / "csv" / "events.csv").open(newline="") as file:
        assert [line["name"] for line in csv.DictReader(file)] == ["'@SUM(A1)", "'-1+cmd", "x"]


@pytest.mark.parametrize(("steps", "kept"), [(None, range(8)), ((2, 3), range(2, 4)), ((5, 1 << 62), range(5, 8))])
def test_tables_in_parquet(recorded: Path, tmp_path: Path, steps: tuple[int, int] | None, kept: range) -> None:
    """Another engine reads what the run's own reader returns, of the chosen steps; each table is there."""
    counts = tables.write(open_run(recorded), tmp_path / "out", "parquet", steps)
    with duckdb.connect() as connection:
        for table in TABLES:
            names = ", ".join(column.name for column in table.columns)
            where = "step IS NOT NULL" if "step" in names.split(", ") and steps else "true"
            lines = connection.sql(
                f"SELECT {names} FROM read_parquet('{tmp_path}/out/{table.name}.parquet')"
            ).fetchall()
            every = open_run(recorded).sql(f"SELECT {names} FROM {table.name} WHERE {where}")
            with duckdb.connect() as other:
                expected = other.from_arrow(every).fetchall()
            if "step" in names.split(", "):
                place = names.split(", ").index("step")
                expected = [line for line in expected if line[place] in (None, *kept)]
            assert Counter(map(repr, lines)) == Counter(map(repr, expected))
            assert counts[f"{table.name}.parquet"] == len(lines)


def test_a_trace_has_each_span_at_its_time(recorded: Path, tmp_path: Path) -> None:
    """To the nanosecond; in a thread, spans are inside of or after each other; NaN is left out."""
    perfetto.write(open_run(recorded), tmp_path / "trace.json.gz", None)
    events = events_in(tmp_path / "trace.json.gz")
    slices = [event for event in events if event["ph"] == "X"]
    spans = open_run(recorded).spans()
    origin = min(spans["start_unix_nano"].tolist()) - min(nanoseconds(event["ts"]) for event in slices)
    threads: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in slices:
        start = nanoseconds(event["ts"])
        threads[event["pid"], event["tid"]].append((start, start + nanoseconds(event["dur"])))
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}

    assert {(event["args"]["span_id"], nanoseconds(event["ts"]), nanoseconds(event["dur"])) for event in slices} == {
        (span_id, start - origin, duration)
        for span_id, start, duration in zip(
            spans["span_id"].tolist(), spans["start_unix_nano"].tolist(), spans["duration_ns"].tolist(), strict=True
        )
    }
    assert all(nested(places) for places in threads.values())
    assert {"metrics", "steps", f"rank 1 on node1{SHAPE.hostile}", f"rollout 0 on node1{SHAPE.hostile}"} <= names
    assert "NaN" not in gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()


def nested(places: list[tuple[int, int]]) -> bool:
    """Return whether each span is inside of another one, or after it."""
    opened: list[int] = []
    for start, end in places:
        while opened and opened[-1] <= start:
            opened.pop()
        if opened and end > opened[-1]:
            return False
        opened.append(end)
    return True


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(-1, 20)), max_size=30))
def test_lanes(spans: list[tuple[int, int, int]]) -> None:
    """Whatever overlaps, and whatever is the parent of what: in a lane, spans are inside of or after each other."""
    lanes, places = TraceLanes(), defaultdict(list)
    for number, (start, duration, parent) in enumerate(sorted(spans, key=lambda span: (span[0], -span[1]))):
        lane = lanes.place(start, start + duration, str(number), str(parent))
        places[lane].append((start, start + duration))
        assert lane < lanes.count

    assert all(map(nested, places.values()))


def test_flows_lead_to_the_step(tmp_path: Path) -> None:
    """Without a training phase, a trajectory that was trained on has a flow to its step; one that was dropped, none."""
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    writer.add(
        Span("rl.trajectory", "a" * 32, "a" * 16, "", 100, 300),
        Span("rl.trajectory", "b" * 32, "b" * 16, "", 200, 400),
        Span("rl.loop", "c" * 32, "c" * 16, "", 500, 900, {"rl.loop.iteration": 1, "rl.run.attempt": 0}),
    )
    writer.add(Row(1, 900, {"loss": 0.5}, trace_id="c" * 32, span_id="c" * 16))
    writer.add(
        *(
            Trajectory(0, 1, 700, 0, how, 1, letter * 32, letter * 16)
            for letter, how in (("a", "trained"), ("b", "stale"))
        )
    )
    writer.save(seals=True)
    perfetto.write(open_run(tmp_path), tmp_path / "trace.json.gz", None)
    flows = [event for event in events_in(tmp_path / "trace.json.gz") if event["ph"] in "sf"]

    assert [(flow["ph"], flow["ts"]) for flow in flows] == [("s", "0.000"), ("f", "0.600")]
    assert len({flow["id"] for flow in flows}) == 1


@pytest.mark.parametrize("kind", ["perfetto", "csv", "parquet", "atif"])
def test_the_files_are_named(recorded: Path, kind: str) -> None:
    """As JSON with the number of lines or events; they are in the run directory, and are its owner's alone."""
    result = CliRunner().invoke(main, ["export", str(recorded), "--to", kind, "--json"])
    answer = json.loads(result.stdout)

    assert result.exit_code == 0
    for name, count in answer["files"].items():
        assert name.startswith(str(recorded))
        assert (recorded / name).stat().st_mode & 0o077 == 0
        assert count >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "otlp", "--steps", "3"], "exporters get the whole run"),
        (["--to", "jsonl", "-o", __file__], "is a file: exporters need a directory"),
        (["--to", "csv,jsonl"], "csv is a format: give it alone"),
        (["--to", "csv", "--again"], "leave --again out"),
        (["--to", "run", "--steps", "3"], "a run is made of all trajectories"),
    ],
)
def test_options_that_do_not_belong_together(recorded: Path, options: list[str], message: str) -> None:
    """The error names the one to leave out."""
    result = CliRunner().invoke(main, ["export", str(recorded), *options])

    assert result.exit_code == 2
    assert message in result.output


def test_an_unknown_exporter(recorded: Path) -> None:
    """The error says which exporter or format was meant; without one, it lists them."""
    mistakes = {"wandbb": "did you mean wandb?", "parqet": "did you mean parquet?", "x": "known are: atif, "}
    for name, message in mistakes.items():
        result = CliRunner().invoke(main, ["export", str(recorded), "--to", name])
        assert (result.exit_code, message in result.output) == (2, True)

    assert "Give one or several of perfetto, csv," in CliRunner().invoke(main, ["export", str(recorded)]).output

"""JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_rl.export import Params, Row
from otel_rl_exporters.jsonl import JsonlExporter
from tests.exporters import same_run
from tests.exporters.trackers import strict

ROWS = same_run.rows()


def read(run, path="rows.jsonl"):
    return [strict(line) for line in Path(run.directory, path).read_text().splitlines()]


def test_usual_line(run):
    """A line has no more than it needs."""
    JsonlExporter(run).export([Row(1, 2, {"loss": float("nan")})])

    assert read(run) == [{"step": 1, "time_unix_nano": 2, "attempt": 0, "values": {"loss": "NaN"}}]


def test_unusual_line(run):
    """A line names the attempt, the part, the missing ranks, the lateness and the death in a row that has them."""
    JsonlExporter(run).export([Row(1, 2, {}, attempt=3, missing_ranks=(4, 5), late=True, part=1, partial=True)])

    where = {"step": 1, "time_unix_nano": 2, "attempt": 3, "part": 1}
    assert read(run) == [{**where, "partial": True, "missing_ranks": [4, 5], "late": True, "values": {}}]


@pytest.mark.parametrize("torn", ['{"step":2', '{"step":2,"values":{"' + "x" * 200_000, "\x00" * 70_000])
def test_torn_line(run, torn):
    """The torn last line of an existing file is cut off, however long it is, and the file continued."""
    exporter = JsonlExporter(run)
    exporter.export(ROWS[:2])
    exporter.shutdown()
    with Path(run.directory, "rows.jsonl").open("a") as file:
        file.write(torn)
    JsonlExporter(run).export(ROWS[2:3])

    assert [line["step"] for line in read(run)] == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    ["a note", '{"step": 5, "note": "of another logger"}', '{"step":5,"loss":0.25}', '{"loss":1.0}', "\x00 text"],
)
def test_a_line_of_another_program(run, text):
    """An existing file that does not end in a newline loses nothing."""
    Path(run.directory, "rows.jsonl").write_text(text)
    JsonlExporter(run).export(ROWS[:1])

    first, second = Path(run.directory, "rows.jsonl").read_text().splitlines()
    assert first == text
    assert json.loads(second)["step"] == 0


def test_only_a_torn_line(run):
    """A file that holds only a torn line is started again."""
    Path(run.directory, "rows.jsonl").write_text('{"st')
    JsonlExporter(run).export(ROWS[:1])

    assert [line["step"] for line in read(run)] == [0]


def test_holds_a_late_row_of_several_steps(run):
    """A row that is reduced over several steps and arrived late is found again by its number."""
    late = Row(3, 7, {"loss": 1.0}, late=True, part=1, begins=2)
    JsonlExporter(run).export([late])

    assert JsonlExporter(run).holds(late)


def test_ignores_the_rest(run):
    """Items that are not rows leave no line."""
    JsonlExporter(run).export([Params(0, {"lr": 1e-6})])

    assert read(run) == []


def test_path(run):
    """`path` is relative to the run directory; its folders are made."""
    JsonlExporter(run, path="out/a.jsonl").export(ROWS[:1])

    assert len(read(run, "out/a.jsonl")) == 1

"""The valid history of a run: what `otel_rl.archive.history.read` makes of `rows.jsonl`."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.archive.history import read
from otel_rl.export import Row, RunInfo
from otel_rl_exporters.jsonl import JsonlExporter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def written(directory: Path, rows: Sequence[Row]) -> Path:
    """Return a run directory with the rows, as the exporter writes them."""
    (directory / "rows.jsonl").unlink(missing_ok=True)
    exporter = JsonlExporter(RunInfo("run", "p", "run", str(directory), {}))
    exporter.export(rows)
    exporter.shutdown()
    return directory


@given(st.data())
def test_the_last_attempt_wins(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Each attempt goes on from any step so far; the history is what a trainer with a checkpoint holds in the end."""
    rows: list[Row] = []
    held: dict[int, float] = {}
    at = 0
    for attempt in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, at))
        held = {step: value for step, value in held.items() if step < at}
        for step in range(at, at + data.draw(st.integers(1, 5))):
            held[step] = value = float(100 * attempt + step)
            rows.append(Row(step, 1, {"x": value}, attempt))
            at = step + 1
    found = list(read(written(tmp_path_factory.mktemp("run"), rows)))

    assert [(row.step, row.values["x"]) for row in found] == sorted(held.items())


def test_late_rows_are_merged(tmp_path: Path) -> None:
    """In the order of their parts, wherever they are in the file; those of a void attempt are void too."""
    rows = [
        Row(0, 1, {"x": 1.0}),
        Row(1, 2, {"x": 2.0}),
        Row(0, 4, {"eval": 2.0}, late=True, part=2),
        Row(0, 3, {"eval": 1.0}, late=True, part=1),
        Row(1, 3, {"eval": 1.0}, late=True, part=1),
        Row(1, 5, {"x": 3.0}, attempt=1),
    ]
    found = list(read(written(tmp_path, rows)))

    assert [(row.step, row.attempt, row.part, row.late, row.values) for row in found] == [
        (0, 0, 0, True, {"x": 1.0, "eval": 2.0}),
        (1, 1, 0, False, {"x": 3.0}),
    ]


def test_a_late_value_does_not_replace_one_that_left_in_time(tmp_path: Path) -> None:
    """The mean over rank 0 stays, since nothing says how to merge it with that of rank 1."""
    rows = [
        Row(0, 1, {"loss": 0.0}, missing_ranks=(1,)),
        Row(0, 2, {"loss": 1.0, "extra": 1.0}, late=True, part=1),
        Row(0, 3, {"loss": 2.0, "extra": 2.0}, late=True, part=2),
    ]
    (found,) = read(written(tmp_path, rows))

    assert (found.values, found.missing_ranks, found.late) == ({"loss": 0.0, "extra": 2.0}, (1,), True)


def test_a_late_row_voids_nothing(tmp_path: Path) -> None:
    """The second attempt began at step 5; what it says of step 2 joins the first one's."""
    rows = [Row(n, 1, {"x": 1.0}) for n in range(6)]
    rows += [Row(5, 2, {"x": 2.0}, attempt=1), Row(2, 3, {"eval": 9.0}, attempt=1, late=True, part=1)]
    found = list(read(written(tmp_path, rows)))

    assert [row.values for row in found] == [
        *[{"x": 1.0}] * 2,
        {"x": 1.0, "eval": 9.0},
        *[{"x": 1.0}] * 2,
        {"x": 2.0},
    ]


def test_windows_that_overlap(tmp_path: Path) -> None:
    """The second attempt went on at step 8: its first row is of step 10, but voids the first one's row of step 9."""
    rows = [Row(5, 1, {"x": 1.0}, begins=1), Row(9, 1, {"x": 2.0}, begins=6), Row(10, 2, {"x": 3.0}, 1, begins=8)]

    assert [row.step for row in read(written(tmp_path, rows))] == [5, 10]


def test_every_value_and_mark_comes_back(tmp_path: Path) -> None:
    """Floats bit for bit, integers as integers of any size, what JSON has no number for, and who was missing."""
    values = {"a": 0.1 + 0.2, "b": 2**60 + 1, "c": math.inf, "d": -math.inf, "e": math.nan}
    row = Row(3, 4, values, 0, (1, 2), partial=True)
    (found,) = read(written(tmp_path, [row]))

    assert math.isnan(found.values["e"])
    assert {**found.values, "e": 0} == {**values, "e": 0}
    assert [type(value) for value in found.values.values()] == [float, int, float, float, float]
    assert (found.missing_ranks, found.partial) == ((1, 2), True)


def test_lines_that_are_not_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are left out and counted once; a torn line at the end is being written."""
    good = json.dumps({"step": 0, "time_unix_nano": 1, "values": {"x": 1}})
    bad = ["{", "[]", "7", '{"step": 0}', good.replace("1}", '"much"}'), good.replace("0,", "true,", 1)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([*bad, good, good[:20]]))
    with caplog.at_level(logging.WARNING):
        found = list(read(file))

    assert [row.values for row in found] == [{"x": 1}]
    assert len(caplog.messages) == 1
    assert str(file) in caplog.messages[0]
    assert "6" in caplog.messages[0].replace(str(file), "")


def test_there_is_no_file(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(FileNotFoundError, match=r"rows\.jsonl"):
        list(read(tmp_path))

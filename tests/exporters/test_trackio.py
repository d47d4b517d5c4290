"""trackio, read back from its database."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from otel_rl.export import Item, Params, Row, RunInfo
from tests.exporters import same_run
from tests.exporters.exactly import bits
from tests.processes import run_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = needs("trackio")

NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
WRITER = """
import sys, msgspec
from otel_rl.export import Item, RunInfo
from otel_rl_exporters.trackio import TrackioExporter
items = msgspec.msgpack.decode(open("items", "rb").read(), type=list[Item])
exporter = TrackioExporter(RunInfo("run-7", "grpo-gsm8k", "baseline", "."))
for item in items:
    exporter.export([item])
exporter.shutdown()
"""


def write(directory: Path, items: Sequence[Item]) -> None:
    """Hand the items to an exporter in a process of its own: trackio reads its directory once."""
    (directory / "items").write_bytes(msgspec.msgpack.encode(items))
    run_python(WRITER, directory, PYTHONPATH=os.pathsep.join(sys.path))


def stored(directory: Path, query: str) -> list[Any]:
    with sqlite3.connect(directory / "trackio" / "grpo-gsm8k.db") as database:
        return database.execute(query).fetchall()


def points(directory: Path) -> dict[str, list[tuple[int, object]]]:
    found: dict[str, list[tuple[int, object]]] = {}
    for step, metrics in stored(directory, "SELECT step, metrics FROM metrics ORDER BY id"):
        for name, value in json.loads(metrics).items():
            if not isinstance(value, dict):
                found.setdefault(name, []).append((step, bits(NAMES.get(value, value))))
    return found


def exact(rows: list[dict[str, Any]]) -> list[list[tuple[str, object]]]:
    """Return the cells comparable with `==`, what is named by a text as the float that it is."""
    return same_run.exact_rows([NAMES.get(cell, cell) for cell in row.values()] for row in rows)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the run of 200 steps."""
    directory = tmp_path_factory.mktemp("run")
    write(directory, same_run.items(RunInfo("run-7", "", "", "")))
    return directory


def test_the_same_run_reads_back(written: Path) -> None:
    """Every value of 500 names at its step, in order, ints as ints; NaN and infinities by name."""
    assert points(written) == same_run.points(same_run.rows(RunInfo("run-7", "", "", "")))


def test_its_hyper_parameters_read_back(written: Path) -> None:
    """They are in the run's config, with the values that trackio adds."""
    ((config,),) = stored(written, "SELECT config FROM configs")
    found = {name: value for name, value in json.loads(config).items() if not name.startswith("_")}

    assert same_run.exact_values(found) == same_run.exact_values(same_run.PARAMS)


def test_its_tables_read_back(written: Path) -> None:
    """Each step's table, cell by cell."""
    found = {
        step: value["_value"]
        for step, metrics in stored(written, "SELECT step, metrics FROM metrics")
        for value in json.loads(metrics).values()
        if isinstance(value, dict) and value["_type"] == "trackio.table"
    }
    expected = {
        table.step: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in same_run.tables()
    }

    assert {step: exact(rows) for step, rows in found.items()} == {step: exact(rows) for step, rows in expected.items()}


@pytest.mark.slow
def test_a_restarted_run_goes_on(tmp_path: Path) -> None:
    """It has the same name, and its rows follow; parameters that come late are a table."""
    write(tmp_path, [Row(0, 0, {"loss": 1.5}), Params(0, {"lr": 0.5}), Row(1, 1, {"loss": 2.5})])
    write(tmp_path, [Row(2, 2, {"loss": 3.5})])

    assert points(tmp_path)["loss"] == [(n, bits(n + 1.5)) for n in range(3)]
    assert stored(tmp_path, "SELECT DISTINCT run_name FROM metrics") == [("run-7",)]
    assert '"_value":[{"name":"lr","value":"0.5"}]' in str(stored(tmp_path, "SELECT metrics FROM metrics"))


@pytest.mark.slow
def test_parameters_of_an_earlier_attempt_stay(tmp_path: Path) -> None:
    """Trackio would replace the config; and it takes no name that begins with an underscore."""
    write(tmp_path, [Params(0, {"lr": 0.5, "_beta": 0.1}), Row(0, 0, {"loss": 1.5})])
    write(tmp_path, [Params(0, {"lr": 0.25}), Row(1, 1, {"loss": 2.5})])
    config = json.loads(stored(tmp_path, "SELECT config FROM configs")[-1][0])

    assert {name: value for name, value in config.items() if not name.startswith("_")} == {"lr": 0.25, "%5Fbeta": 0.1}

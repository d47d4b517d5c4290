"""SwanLab, read back from its offline file with its own reader."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Params, Row, RunInfo, Table
from tests.exporters import same_run
from tests.exporters.exactly import bits
from tests.exporters.swanlab_file import records
from tests.real_parts import needs, part

part("swanlab")
pytestmark = needs("swanlab")

from otel_rl_exporters.swanlab import SwanlabExporter, _mode, _run_id, escape, unescape  # noqa: E402 # where there is SwanLab


def scalars(run: RunInfo) -> dict[str, list[tuple[int, int | bytes]]]:
    found: dict[str, list[tuple[int, int | bytes]]] = {}
    for record in records(Path(run.directory)):
        if record.WhichOneof("record_type") == "scalar":
            found.setdefault(record.scalar.key, []).append((record.scalar.step, bits(record.scalar.value.number)))
    return found


def texts(run: RunInfo) -> list[tuple[str, int, str]]:
    found = []
    for record in records(Path(run.directory)):
        if record.WhichOneof("record_type") == "media":
            (item,) = record.media.value.items
            (file,) = Path(run.directory, "swanlab").glob(f"run-*/media/text/{item.filename}")
            found.append((record.media.key, record.media.step, file.read_text()))
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> RunInfo:
    """The run of 200 steps, offline."""
    run = RunInfo("run-7", "grpo-gsm8k", "baseline", str(tmp_path_factory.mktemp("run")))
    exporter = SwanlabExporter(run, mode="offline")
    for item in same_run.items(run):
        exporter.export([item])
    exporter.shutdown()
    return run


def test_the_same_run_reads_back(written: RunInfo) -> None:
    """Every value of 500 names at its step, in order, as floats; NaN and infinities too."""
    assert scalars(written) == same_run.points(same_run.rows(written), float)


def test_its_hyper_parameters_read_back(written: RunInfo) -> None:
    """They are the experiment's config; SwanLab has no None, which is its name."""
    (path,) = Path(written.directory, "swanlab").glob("run-*/files/config.yaml")
    config = {name: entry["value"] for name, entry in yaml.safe_load(path.read_text()).items()}

    assert config == {name: "None" if value is None else value for name, value in same_run.PARAMS.items()}


def cells(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table."""
    inner = re.split(r"(?<!\\)(?:\\\\)*\|", line.removeprefix("|").removesuffix("|"))
    return [re.sub(r"\\([\\|])", r"\1", cell[1:-1]).replace("<br>", "\n") for cell in inner]


def test_its_tables_read_back(written: RunInfo) -> None:
    """Each is a text of its step: a Markdown table with all cells; carriage returns are dropped."""
    found = texts(written)

    assert [(name, step) for name, step, _ in found] == [(table.name, table.step) for table in same_run.tables()]
    for (_, _, text), table in zip(found, same_run.tables(), strict=True):
        header, line, *rows = text.split("\n")
        assert cells(header) == list(table.columns)
        assert cells(line) == ["---"] * len(table.columns)
        assert [cells(row) for row in rows] == [
            ["" if cell is None else str(cell).replace("\r", "") for cell in row] for row in table.rows
        ]


def test_a_restarted_run_has_the_same_id(run: RunInfo) -> None:
    """SwanLab joins the two when they are sent; a step that is behind is kept."""
    for step in (5, 3):
        exporter = SwanlabExporter(run, mode="offline")
        exporter.export([Row(step, 0, {"loss": step / 3})])
        exporter.shutdown()
    ids = {record.start.id for record in records(Path(run.directory)) if record.WhichOneof("record_type") == "start"}

    assert ids == {"run-7"}
    assert sorted(scalars(run)["loss"]) == [(3, bits(1.0)), (5, bits(5 / 3))]


def test_late_parameters(run: RunInfo) -> None:
    """They join the config."""
    exporter = SwanlabExporter(run, mode="offline")
    exporter.export([Row(0, 0, {"loss": math.nan})])
    exporter.export([Params(0, {"lr": 0.5})])
    exporter.export([Table("t", 0, 0, ("a",), ((1,),))])
    exporter.shutdown()
    (path,) = Path(run.directory, "swanlab").glob("run-*/files/config.yaml")

    assert yaml.safe_load(path.read_text())["lr"]["value"] == 0.5


def test_parameters_of_an_earlier_attempt_stay(run: RunInfo) -> None:
    """SwanLab would replace the config; the restarted run hands all of it over again."""
    for params in ({"lr": 0.5, "beta": 0.1}, {"lr": 0.25}):
        exporter = SwanlabExporter(run, mode="offline")
        exporter.export([Params(0, dict(params))])
        exporter.shutdown()
    last = max(Path(run.directory, "swanlab").glob("run-*/files/config.yaml"), key=lambda path: path.stat().st_mtime_ns)

    assert {name: entry["value"] for name, entry in yaml.safe_load(last.read_text()).items()} == {
        "lr": 0.25,
        "beta": 0.1,
    }


@given(st.text(max_size=40) | st.text("./ %2Fa_", max_size=12))
def test_every_name_comes_back(name: str) -> None:
    """Nothing is left that SwanLab would trim, so that `loss/` and `loss` stay two metrics."""
    escaped = escape(name)

    assert escaped == escaped.strip(" ./") != ""
    assert unescape(escaped) == name


def test_names_that_swanlab_would_trim_are_two_metrics(run: RunInfo) -> None:
    """As its own file shows."""
    exporter = SwanlabExporter(run, mode="offline")
    exporter.export([Row(0, 0, {"loss": 1.0, "loss/": 2.0, ".loss": 3.0})])
    exporter.shutdown()

    assert {unescape(name): points for name, points in scalars(run).items()} == {
        "loss": [(0, bits(1.0))],
        "loss/": [(0, bits(2.0))],
        ".loss": [(0, bits(3.0))],
    }


def test_without_a_key_it_stays_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a login is not an error. An explicit cloud mode is kept."""
    monkeypatch.setenv("SWANLAB_SAVE_DIR", str(tmp_path))
    monkeypatch.delenv("SWANLAB_API_KEY", raising=False)
    monkeypatch.delenv("SWANLAB_MODE", raising=False)

    assert (_mode(None), _mode("cloud")) == ("offline", "online")
    monkeypatch.setenv("SWANLAB_API_KEY", "key")
    assert _mode(None) == "online"
    monkeypatch.setenv("SWANLAB_MODE", "local")
    assert _mode(None) == "local"


def test_ids_that_differ_stay_different() -> None:
    """Characters that SwanLab does not allow in an id are replaced, and a hash keeps the ids different."""
    assert _run_id("run-7") == "run-7"
    assert len({_run_id("a.b"), _run_id("a-b"), _run_id("a b"), _run_id("x" * 80)}) == 4

"""SwanLab, read back from its offline file with its own reader."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Ended, Params, Row, RunInfo, Table
from tests.exporters.networks import Swanlab
from tests.exporters.swanlab_file import records
from tests.exporters.trackers import SWANLAB, bits
from tests.real_parts import needs, part

part("swanlab")
pytestmark = needs("swanlab")

from otel_rl_exporters.swanlab import SwanlabExporter, _mode, _run_id, escape, unescape  # noqa: E402 # where there is SwanLab


def test_a_restarted_run_has_the_same_id(run: RunInfo) -> None:
    """SwanLab joins the two when they are sent; a step that is behind is kept."""
    for step in (5, 3):
        SWANLAB.deliver(run, [Row(step, 0, {"loss": step / 3})])
    ids = {record.start.id for record in records(Path(run.directory)) if record.WhichOneof("record_type") == "start"}

    assert ids == {"run-7"}
    assert sorted(SWANLAB.points(Path(run.directory))["loss"]) == [(3, bits(1.0)), (5, bits(5 / 3))]


def test_late_parameters(run: RunInfo) -> None:
    """They join the config."""
    SWANLAB.deliver(run, [Row(0, 0, {"loss": math.nan}), Params(0, {"lr": 0.5}), Table("t", 0, 0, ("a",), ((1,),))])

    assert SWANLAB.params(Path(run.directory)) == {"lr": 0.5}


def test_parameters_of_an_earlier_attempt_stay(run: RunInfo) -> None:
    """SwanLab would replace the config; the restarted run hands all of it over again."""
    for params in ({"lr": 0.5, "beta": 0.1}, {"lr": 0.25}):
        SWANLAB.deliver(run, [Params(0, dict(params))])

    assert SWANLAB.params(Path(run.directory)) == {"lr": 0.25, "beta": 0.1}


@given(st.text(max_size=40) | st.text("./ %2Fa_", max_size=12))
def test_every_name_comes_back(name: str) -> None:
    """Nothing is left that SwanLab would trim, so that `loss/` and `loss` stay two metrics."""
    escaped = escape(name)

    assert escaped == escaped.strip(" ./") != ""
    assert unescape(escaped) == name


def test_names_that_swanlab_would_trim_are_two_metrics(run: RunInfo) -> None:
    """As its own file shows."""
    SWANLAB.deliver(run, [Row(0, 0, {"loss": 1.0, "loss/": 2.0, ".loss": 3.0})])

    assert SWANLAB.points(Path(run.directory)) == {
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


def test_a_restarted_run_sends_what_its_server_lacks(run: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points, tables and the end are on the server, each once."""
    network = Swanlab()
    with network.serving(Path(run.directory)) as address:
        for name, value in network.environment(address).items():
            monkeypatch.setenv(name, value)
        for steps, outcome in ((range(3), "failed"), (range(1, 5), "finished")):
            rows = [Row(n, n * 10**9, {"loss": n / 3}) for n in steps]
            tables = [Table("t", n, n, ("a",), ((n,),)) for n in steps]
            exporter = SwanlabExporter(run)
            exporter.export([*rows, *tables, Ended(9, 0, outcome)])
            exporter.shutdown()
        stored = network.server.runs[run.id]

    assert [(point["index"], point["data"]) for point in stored.points["scalar"]] == [(n, n / 3) for n in range(5)]
    assert [point["index"] for point in stored.points["media"]] == list(range(5))
    assert stored.state == "FINISHED"


def test_ids_that_differ_stay_different() -> None:
    """Characters that SwanLab does not allow in an id are replaced, and a hash keeps the ids different."""
    assert _run_id("run-7") == "run-7"
    assert len({_run_id("a.b"), _run_id("a-b"), _run_id("a b"), _run_id("x" * 80)}) == 4

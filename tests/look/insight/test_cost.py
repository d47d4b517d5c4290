"""The cost of a run: only what was recorded, and the share of it that was wasted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import otel_rl
from otel_rl.cli import main
from otel_rl.export import Params, Process, Row
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.facts import Cost
from otel_rl.look.insight.run_values import RunValues
from otel_rl.look.insight.selection import RunColumn
from otel_rl.look.terminal.listing import runs_below
from otel_rl.recorder.archive.writer import ArchiveWriter

_S = 1_000_000_000
_HOUR = 3600 * _S
_AT = 1_790_000_000 * _S
_PROCESS = Process(0, "", 0, 2, "node1", 1, _AT, devices=("H200",), ended_unix_nano=_AT + _HOUR, outcome="finished")


def recorded(place: Path, *items: Process | Row, price: object = 0) -> Path:
    """Write a run with processes and rows."""
    place.mkdir(parents=True)
    manifest = {"id": "i", "project": "p", "name": "n", "agent": {"cost_per_gpu_hour": price}}
    (place / "run.json").write_text(json.dumps(manifest))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    for item in (Params(_AT, {"lr": 1.0}), *items):
        writer.add(item)
    writer.save(seals=True)
    return place


def cost(place: Path) -> Cost:
    """Return the cost of a run two hours after its start."""
    return facts_of(otel_rl.open_run(place), at_unix_nano=_AT + 2 * _HOUR).cost


def test_hours_of_gpus(tmp_path: Path) -> None:
    """They are the GPUs of all ranks times the wall time of their attempt, until its last rank has ended."""
    second = replace(_PROCESS, rank=1, host="node2", devices=("H200", "H200"), started_unix_nano=_AT + 60 * _S)

    assert cost(recorded(tmp_path / "r", _PROCESS, second)).gpu_hours == pytest.approx(3)


def test_attempts(tmp_path: Path) -> None:
    """The time between them is nobody's."""
    again = replace(_PROCESS, attempt=1, started_unix_nano=_AT + 3 * _HOUR, ended_unix_nano=_AT + 5 * _HOUR)

    assert cost(recorded(tmp_path / "r", _PROCESS, again)).gpu_hours == pytest.approx(3)


def test_a_rank_that_comes_back(tmp_path: Path) -> None:
    """Its GPU is counted once, also while its new process has not seen it."""
    again = replace(_PROCESS, pid=2, started_unix_nano=_AT + 60 * _S)
    blind = replace(again, pid=3, started_unix_nano=_AT + 90 * _S, devices=())

    assert cost(recorded(tmp_path / "r", _PROCESS, again)).gpu_hours == pytest.approx(1)
    assert cost(recorded(tmp_path / "b", _PROCESS, again, blind)).gpu_hours == pytest.approx(1)


def test_ranks_that_may_share_gpus(tmp_path: Path) -> None:
    """Nothing is said of ranks of one machine that list several each; of one rank on each machine, it is."""
    pair = replace(_PROCESS, devices=("H200", "H200"))

    assert cost(recorded(tmp_path / "one", pair, replace(pair, rank=1))).gpu_hours is None
    assert cost(recorded(tmp_path / "two", pair, replace(pair, rank=1, host="node2"))).gpu_hours == pytest.approx(4)


def test_an_attempt_that_ended_before_a_gpu_was_seen(tmp_path: Path) -> None:
    """It is left out, and the others count; one with steps and without GPUs makes the hours unknown."""
    early = replace(_PROCESS, devices=(), ended_unix_nano=_AT + 60 * _S, outcome="crashed")
    again = replace(_PROCESS, attempt=1, started_unix_nano=_AT + _HOUR, ended_unix_nano=_AT + 2 * _HOUR)
    steps = [Row(step, _AT + (step + 1) * 10 * _S, {"time/step": 10.0}) for step in range(3)]

    assert cost(recorded(tmp_path / "r", early, again)).gpu_hours == pytest.approx(1)
    assert cost(recorded(tmp_path / "s", early, again, *steps)).gpu_hours is None


def test_an_attempt_without_a_recorded_end(tmp_path: Path) -> None:
    """It lasts until its last whole step, as for goodput."""
    lost = replace(_PROCESS, ended_unix_nano=None, outcome=None)
    again = replace(_PROCESS, attempt=1, started_unix_nano=_AT + _HOUR, ended_unix_nano=_AT + 2 * _HOUR)
    steps = [Row(step, _AT + (step + 1) * 600 * _S, {"time/step": 600.0}) for step in range(3)]

    assert cost(recorded(tmp_path / "r", lost, again, *steps)).gpu_hours == pytest.approx(1.5)


def test_unknown_gpus(tmp_path: Path) -> None:
    """If a rank does not say, nothing is said, of money neither."""
    other = replace(_PROCESS, rank=1, devices=())

    assert cost(recorded(tmp_path / "r", _PROCESS, other, price=2.0)) == Cost(cost_per_gpu_hour=2.0)
    assert cost(recorded(tmp_path / "without")) == Cost()


def test_other_roles(tmp_path: Path) -> None:
    """Their GPUs may be those of the ranks, so they are not counted twice."""
    worker = replace(_PROCESS, role="rollout")

    assert cost(recorded(tmp_path / "r", _PROCESS, worker)).gpu_hours == pytest.approx(1)


@pytest.mark.parametrize(
    ("price", "money"), [(2.5, 2.5), (0, None), (-1, None), ("2", None), (True, None), (None, None)]
)
def test_money(tmp_path: Path, price: object, money: float | None) -> None:
    """It is the price in `run.json`, which may be somebody else's, times the hours."""
    assert cost(recorded(tmp_path / "r", _PROCESS, price=price)).money == money


def test_the_setting(tmp_path: Path) -> None:
    """A run records it."""
    run = otel_rl.init(dir=tmp_path, agent="off", exporters=[], quiet=True, cost_per_gpu_hour=2.5)
    run.finish(0)

    assert json.loads((run.dir / "run.json").read_text())["agent"]["cost_per_gpu_hour"] == 2.5


def test_the_list(tmp_path: Path) -> None:
    """It has the cost, sorts by it, and takes another price."""
    recorded(tmp_path / "runs" / "cheap", _PROCESS)
    recorded(tmp_path / "runs" / "dear", replace(_PROCESS, ended_unix_nano=_AT + 3 * _HOUR))
    arguments = ["ls", str(tmp_path / "runs"), "--sort", "cost", "--columns", "cost", "--cost-per-gpu-hour", "2"]
    runs = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).stdout)["runs"]

    assert [Path(run["path"]).name for run in runs] == ["dear", "cheap"]
    assert [run["columns"]["cost"] for run in runs] == pytest.approx([6, 2])
    assert runs[0]["cost"]["gpu_hours"] == pytest.approx(3)
    assert [run["cost"]["money"] for run in runs] == pytest.approx([6, 2])


@pytest.mark.parametrize("price", ["nan", "inf", "0", "-1"])
def test_a_price_that_is_none(price: str) -> None:
    """It is refused."""
    done = CliRunner().invoke(main, ["ls", "--cost-per-gpu-hour", price])

    assert done.exit_code == 2
    assert "--cost-per-gpu-hour" in done.stderr


def test_the_archive_is_opened_once(tmp_path: Path) -> None:
    """The cost is that of the facts, if these are known, and the facts are of what the cost was read from."""
    recorded(tmp_path / "r", _PROCESS)
    values = RunValues(runs_below([tmp_path])[0], _AT, 2.0)

    assert values.value(RunColumn("cost")) == pytest.approx(2)
    assert values.facts.cost.money == pytest.approx(2)
    later = RunValues(values.run, _AT, 2.0)
    assert later.facts.cost == values.facts.cost
    shutil.rmtree(tmp_path / "r")
    assert later.value(RunColumn("cost")) == pytest.approx(2)


def test_the_report(tmp_path: Path) -> None:
    """Its title line has the hours and the money."""
    html = otel_rl.report(recorded(tmp_path / "r", _PROCESS, price=2.5)).html

    assert "1 GPU-hours, cost 2.5" in html

"""The cost of a run: only what was recorded, and the share of it that was wasted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import otel_rl
from otel_rl.cli import main
from otel_rl.export import Params, Process
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.facts import Cost
from otel_rl.recorder.archive.writer import ArchiveWriter

_S = 1_000_000_000
_HOUR = 3600 * _S
_AT = 1_790_000_000 * _S
_PROCESS = Process(0, "", 0, 2, "node1", 1, _AT, devices=("H200",), ended_unix_nano=_AT + _HOUR, outcome="finished")


def recorded(place: Path, *processes: Process, price: object = 0) -> Path:
    """Write a run with processes."""
    place.mkdir(parents=True)
    manifest = {"id": "i", "project": "p", "name": "n", "agent": {"cost_per_gpu_hour": price}}
    (place / "run.json").write_text(json.dumps(manifest))
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    for item in (Params(_AT, {"lr": 1.0}), *processes):
        writer.add(item)
    writer.save(seals=True)
    return place


def cost(place: Path) -> Cost:
    """Return the cost of a run two hours after its start."""
    return facts_of(otel_rl.open_run(place), at_unix_nano=_AT + 2 * _HOUR).cost


def test_hours_of_gpus(tmp_path: Path) -> None:
    """They are the GPUs of all ranks times the wall time of their attempt, until its last rank has ended."""
    second = replace(_PROCESS, rank=1, devices=("H200", "H200"), started_unix_nano=_AT + 60 * _S)

    assert cost(recorded(tmp_path / "r", _PROCESS, second)).gpu_hours == pytest.approx(3)


def test_attempts(tmp_path: Path) -> None:
    """The time between them is nobody's."""
    again = replace(_PROCESS, attempt=1, started_unix_nano=_AT + 3 * _HOUR, ended_unix_nano=_AT + 5 * _HOUR)

    assert cost(recorded(tmp_path / "r", _PROCESS, again)).gpu_hours == pytest.approx(3)


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


def test_the_report(tmp_path: Path) -> None:
    """Its title line has the hours and the money."""
    html = otel_rl.report(recorded(tmp_path / "r", _PROCESS, price=2.5)).html

    assert "1 GPU-hours, cost 2.5" in html

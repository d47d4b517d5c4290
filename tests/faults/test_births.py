"""Run directories on a file server that are removed: what this machine keeps elsewhere for them outlives them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import ModuleType

import pytest

import otel_rl
from otel_rl import Run
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.files import file_systems, private_directories
from tests.collector import wait_for
from tests.processes import remove, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make every directory look like one of a file server to trainers, except that of this machine."""
    local = tmp_path / "machine"
    local.mkdir()
    monkeypatch.setattr(file_systems, "type_of", lambda path: "ext4" if local in (path, *path.parents) else "nfs")
    monkeypatch.setattr(private_directories, "_LASTING", local)
    monkeypatch.setattr(tempfile, "tempdir", str(local))
    return local


def record(place: Path, first: float, *exporters: object, agent: str = "auto") -> Run:
    """Record a run of 20 steps with values from `first` on."""
    run = otel_rl.init(
        dir=place, project="p", id="r", quiet=True, hardware=False, exporters=["jsonl", *exporters], agent=agent
    )
    for number in range(20):
        run.log({"x": first + number}, step=number)
    return run


def values(run: Run) -> list[float]:
    return [row["values"]["x"] for row in rows_of(run.dir)]  # type: ignore[index]


def test_a_new_run_gets_nothing_of_a_removed_one(tmp_path: Path) -> None:
    """It has the same id and path; journals that nobody had delivered are not its own."""
    first = record(tmp_path, 0, agent="off")
    first.finish(0)
    remove(first.dir)
    second = record(tmp_path, 100)

    assert second.finish(60)
    assert second.attempt == 0
    assert values(second) == [100.0 + n for n in range(20)]


def test_an_agent_ends_with_its_run_directory(tmp_path: Path, gates: ModuleType) -> None:
    """It has a backlog for an exporter, and would write into the directory of the next run."""
    first = record(tmp_path, 0, gates.Gated)
    first.finish(2)
    of_first = first._session.directory
    assert agent_start.is_looked_after(of_first)
    remove(first.dir)
    wait_for(lambda: not agent_start.is_looked_after(of_first), "the agent goes on")
    second = record(tmp_path, 100, gates.Gated)
    (second.dir / "open").touch()

    assert second.finish(60)
    assert values(second) == [100.0 + n for n in range(20)]
    assert (second.dir / "gated.txt").read_text().count("\n") == 20


@pytest.mark.parametrize("calls", [True, False], ids=["records", "finishes"])
def test_a_trainer_makes_its_directory_again(tmp_path: Path, *, calls: bool) -> None:
    """Everything that it records afterwards arrives, also if its next call is the last one."""
    run = record(tmp_path, 0)
    directory = run._session.directory
    wait_for(lambda: len(rows_of(run.dir)) > 10, "no rows arrive")
    remove(run.dir)
    wait_for(lambda: not agent_start.is_looked_after(directory), "the agent goes on")
    if calls:
        wait_for(lambda: run.event("x") or agent_start.is_looked_after(directory), "no agent comes back")
    run.log({"x": 20.0}, step=20)

    assert run.finish(60)
    assert values(run)[-1] == 20.0


def test_a_trainer_whose_directory_is_of_another_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, and leaves the new run alone; `finish` does not wait for an agent that will not come."""
    first = record(tmp_path, 0)
    directory = first._session.directory
    remove(first.dir)
    wait_for(lambda: not agent_start.is_looked_after(directory), "the agent goes on")
    (first.dir / "local").mkdir(parents=True)
    (first.dir / "birth.json").write_text('"0123456789abcdef"')
    time.sleep(1.1)  # until the next look
    first.log({"x": 20.0}, step=20)

    assert not first.finish(600)
    assert sum("another run is there now" in line for line in caplog.messages) == 2
    assert not (first.dir / "run.json").exists()

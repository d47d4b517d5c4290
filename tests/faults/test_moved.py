"""A run directory that is moved or removed while its trainer records: the recording goes on, and nothing is lost."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.agent import GoneError
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.locks import is_held
from tests.collector import wait_for
from tests.faults.gates import STEPS, gated
from tests.processes import journal_of, local_of, remove, rows_of, start

CHECK_S = 1.1


def begin(place: Path) -> otel_rl.Run:
    """Begin a run and record two steps."""
    run = otel_rl.init(dir=place, project="p", id="r", quiet=True, hardware=False, agent="off")
    for n in range(2):
        run.log({"loss": float(n)}, step=n)
    return run


def go_on(run: otel_rl.Run) -> None:
    """Record two more steps, after a check of the files."""
    time.sleep(CHECK_S)
    for n in range(2, 4):
        run.log({"loss": float(n)}, step=n)


def move(run: Path, to: Path) -> None:
    """Move a directory as `mv` does on one disk."""
    run.rename(to)


def move_parent(run: Path, to: Path) -> None:
    """Move the directory that the run directory is in."""
    (to.parent / to.stem).mkdir()
    run.parent.rename(to.parent / to.stem / "p")
    to.symlink_to(to.parent / to.stem / "p" / run.name)


def copy_and_remove(run: Path, to: Path) -> None:
    """Move a directory as `mv` does between disks."""
    shutil.copytree(run, to)
    remove(run)


@pytest.mark.parametrize("moves", [move, move_parent, copy_and_remove])
def test_a_run_directory_that_is_moved(tmp_path: Path, caplog, moves: Callable[[Path, Path], None]) -> None:
    """The trainer makes it again, with all that an agent needs, and warns once; the other place has the first rows."""
    run, moved = begin(tmp_path), tmp_path / "moved.link"
    moves(run.dir, moved)
    go_on(run)
    is_held_at_new, is_held_at_old = is_held(journal_of(moved)), is_held(journal_of(run.dir))
    run.finish()

    assert (is_held_at_old, is_held_at_new) == (True, False)
    assert caplog.text.count("were removed or moved while it is recorded") == 1
    assert run_agent(run.dir, once=True)
    assert [row["step"] for row in rows_of(run.dir)] == [0, 1, 2, 3]
    run_agent(moved.resolve(), once=True)
    assert [row["step"] for row in rows_of(moved)][:2] == [0, 1]


def test_the_agent_of_a_run_directory_that_is_moved(waiting: Path) -> None:
    """It ends and says so; the next agent delivers the rest at the new place, and nothing twice."""
    ended: list[BaseException] = []

    def work() -> None:
        with pytest.raises(GoneError) as error:
            run_agent(waiting, once=True)
        ended.append(error.value)

    running = threading.Thread(target=work)
    (local_of(waiting) / "agent.json").unlink()
    running.start()
    wait_for(lambda: agent_start.read_status(directories.at(waiting)).failures, "no exporter that waits")
    moved = waiting.rename(waiting.parent / "moved")
    running.join(30)
    (moved / "open").touch()

    assert "was removed, moved or replaced" in str(ended[0])
    assert run_agent(moved, once=True)
    assert gated(moved) == [*range(STEPS)]
    assert [row["step"] for row in rows_of(moved)] == [*range(STEPS)]


def test_once_while_a_trainer_records_without_an_agent(tmp_path: Path) -> None:
    """The remaining items are delivered; the exit code reports a loss, and the message names it."""
    run = begin(tmp_path)
    once = start([sys.executable, "-m", "otel_rl.cli", "agent", str(run.dir), "--once"], tmp_path)
    said = once.communicate(timeout=60)[1]

    assert f"{journal_of(run.dir).name} is still being recorded" in said
    assert once.returncode == 1
    assert [row["step"] for row in rows_of(run.dir)] == [0]

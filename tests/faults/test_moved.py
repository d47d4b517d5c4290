"""A run directory that is moved or removed while its trainer records: the recording goes on, and nothing is lost."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

import otel_rl
from otel_rl.agent.agent import GoneError
from otel_rl.agent.process import run_agent
from otel_rl.journal.claim import claim_journal
from otel_rl.journal.locks import is_held
from otel_rl.journal.reader import Reader
from otel_rl.journal.records import AnyRecord, Logged
from otel_rl.journal.writer import Writer
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
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


def test_a_run_directory_that_is_moved(tmp_path: Path) -> None:
    """The trainer follows it: all rows are there, nothing is made at the old place, and the journal stays held."""
    run = begin(tmp_path)
    old, moved = run.dir, tmp_path / "p" / "a better name"
    old.rename(moved)
    go_on(run)
    held = is_held(journal_of(moved))
    run.finish()

    assert run.dir == moved
    assert held
    assert not old.exists()
    assert run_agent(moved, once=True)
    assert [row["step"] for row in rows_of(moved)] == [0, 1, 2, 3]


def test_a_run_directory_that_is_copied_and_removed(tmp_path: Path) -> None:
    """As `mv` to another disk does it: the trainer makes it again, with all that an agent needs."""
    run = begin(tmp_path)
    shutil.copytree(run.dir, tmp_path / "copy")
    remove(run.dir)
    go_on(run)
    run.finish()

    assert run_agent(run.dir, once=True)
    assert [row["step"] for row in rows_of(run.dir)] == [0, 1, 2, 3]
    run_agent(tmp_path / "copy", once=True)
    assert [row["step"] for row in rows_of(tmp_path / "copy")] == [0, 1]


def test_segments_behind_the_move(tmp_path: Path) -> None:
    """Later segments are made in the new place."""
    journals = tmp_path / "journals"
    journals.mkdir()
    claim = claim_journal(journals, "rank0")
    writer = Writer(claim.path, segment_bytes=4096)
    for n in range(100):
        writer.append(Logged(n, n, {"loss": float(n)}))
        if n == 50:
            journals.rename(tmp_path / "elsewhere")
            assert claim.follow()
            writer.moved(claim.path)
            writer.check()
    writer.close()
    claim.release()
    found = Reader(tmp_path / "elsewhere" / claim.path.name, AnyRecord).read()

    assert [record.step for record in found if isinstance(record, Logged)] == [*range(100)]
    assert not journals.exists()


def test_the_agent_of_a_run_directory_that_is_moved(waiting: Path) -> None:
    """It ends and says where the directory is; the next agent delivers the rest there, and nothing twice."""
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

    assert f"{waiting} was moved to {moved}; a trainer that lives starts an agent there" in str(ended[0])
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

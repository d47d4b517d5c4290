"""Files of a run that somebody removes, between two starts or while it runs: nothing is lost or doubled silently."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import otel_rl
from otel_rl.agent.input.follow import Follower
from otel_rl.agent.process import run_agent
from otel_rl.journal.claim import claim_journal
from otel_rl.journal.record_events import Lost, Revived
from otel_rl.journal.records import Logged
from otel_rl.journal.writer import Writer
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from tests.collector import wait_for
from tests.faults.gates import STEPS, gated
from tests.processes import local_of, remove, rows_of

if TYPE_CHECKING:
    from pathlib import Path

MINUTE_NS = 60_000_000_000
EXPORTERS = ["jsonl", "tensorboard"]


def train(place: Path, first: int, end: int) -> bool:
    """Record some steps and deliver them; return whether all of the run was delivered."""
    run = otel_rl.init(dir=place, project="p", id="r", quiet=True, hardware=False, exporters=EXPORTERS, agent="off")
    for n in range(first, end):
        with run.step(n):
            run.log({"loss": float(n)})
    run.finish()
    return run_agent(run.dir, once=True)


def jsonl(run_dir: Path) -> list[tuple[object, object]]:
    """Return attempt and step of each row."""
    return [(row["attempt"], row["step"]) for row in rows_of(run_dir)]


def tensorboard(run_dir: Path) -> list[int]:
    """Return the steps of all scalars."""
    events = [
        event for path in sorted((run_dir / "tensorboard").glob("*")) for event in EventFileLoader(str(path)).Load()
    ]
    return [event.step for event in events if any(value.tag == "loss" for value in event.summary.value)]


@pytest.mark.parametrize("removed", ["journals", "outbox", "cursors", "local", "attempts"])
def test_what_is_removed_between_two_starts(tmp_path: Path, removed: str) -> None:
    """The second start is another attempt, all of its rows arrive, and none of the first one's comes again."""
    run_dir = tmp_path / "p" / "r"
    first = train(tmp_path, 0, 4)
    remove((run_dir if removed in ("local", "attempts") else local_of(run_dir)) / removed)
    second = train(tmp_path, 2, 6)

    assert (first, second) == (True, True)
    assert jsonl(run_dir) == [*((0, n) for n in range(4)), *((1, n) for n in range(2, 6))]
    assert tensorboard(run_dir) == [0, 1, 2, 3, 2, 3, 4, 5]


def test_journals_and_attempts_that_are_removed(tmp_path: Path) -> None:
    """The number of attempts is forgotten, but the new journal is not taken for the old one: its rows are there."""
    run_dir = tmp_path / "p" / "r"
    train(tmp_path, 0, 4)
    remove(local_of(run_dir) / "journals")
    remove(run_dir / "attempts")

    assert train(tmp_path, 2, 6)
    assert [row["step"] for row in rows_of(run_dir)] == [0, 1, 2, 3, 2, 3, 4, 5]


def test_a_journal_that_is_removed_before_it_was_read(tmp_path: Path) -> None:
    """The next agent knows that it was there: its process is lost, and counted."""
    journal = tmp_path / "rank0.attempt0.1f"
    journal.mkdir()
    Writer(journal).append(Logged(0, 1, {"loss": 1.0}))
    first = Follower(tmp_path, {})
    first.look()
    assert [one.record for one in first.read(1, 1)] == [Logged(0, 1, {"loss": 1.0})]
    remove(journal)
    following = Follower(tmp_path, first.positions)
    following.look()

    assert following.read(100, 1) == [(journal.name, Lost(0))]
    assert following.missing == {journal.name}
    assert not following.alive


def test_a_journal_that_is_removed_while_its_process_lives(tmp_path: Path) -> None:
    """Its process is not held for dead for a minute; at its next check it makes the journal again."""
    claim = claim_journal(tmp_path, "rank0")
    writer = Writer(claim.path)
    writer.append(Logged(0, 1, {"loss": 1.0}))
    follower = Follower(tmp_path, {})
    follower.look()
    read = [[one.record for one in follower.read(100, 1)]]
    for _ in range(2):
        shutil.rmtree(claim.path)
        writer.append(Logged(1, 2, {"loss": 2.0}))
        read.append([one.record for one in follower.read(100, MINUTE_NS)])
        claim.keep()
        writer.check()
        read.append([one.record for one in follower.read(100, MINUTE_NS)])
    claim.release()
    read.append([one.record for one in follower.read(100, MINUTE_NS)])

    assert [type(record) for records in read for record in records] == [Logged, Logged, Logged, Lost]


def test_a_journal_that_comes_back_after_an_hour(tmp_path: Path) -> None:
    """A trainer that made no call for so long is held for dead, and lives again."""
    claim = claim_journal(tmp_path, "rank0")
    writer = Writer(claim.path)
    follower = Follower(tmp_path, {})
    follower.look()
    assert follower.read(100, 1) == []
    shutil.rmtree(claim.path)
    lost = follower.read(100, 60 * MINUTE_NS)
    follower.read(100, 61 * MINUTE_NS)
    claim.keep()
    writer.check()
    writer.append(Logged(1, 2, {"loss": 2.0}))

    assert [one.record for one in lost] == [Lost(1)]
    assert [type(one.record) for one in follower.read(100, 62 * MINUTE_NS)] == [Revived, Logged]


def test_cursors_that_are_removed_while_exporters_wait(waiting: Path) -> None:
    """They are written again: everything is delivered, and the next agent knows that."""
    delivered: list[bool] = []
    running = threading.Thread(target=lambda: delivered.append(run_agent(waiting, once=True)))
    (local_of(waiting) / "agent.json").unlink()
    running.start()
    wait_for(lambda: agent_start.read_status(directories.at(waiting)).failures, "no exporter that waits")
    remove(local_of(waiting) / "cursors")
    (waiting / "open").touch()
    running.join(30)

    assert delivered == [True]
    assert gated(waiting) == [*range(STEPS)]
    assert run_agent(waiting, once=True)
    assert gated(waiting) == [*range(STEPS)]

"""Files of a run that somebody removes, between two starts or while it runs: nothing is lost or doubled silently."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from otel_rl.recorder.agent.input.follow import Follower
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.claim import claim_journal
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import Logged
from otel_rl.recorder.journal.writer import Writer
from tests.collector import wait_for
from tests.faults.gates import STEPS, gated
from tests.processes import local_of, remove

MINUTE_NS = 60_000_000_000


def test_a_journal_that_is_removed_before_it_was_read(tmp_path: Path) -> None:
    """The next agent knows that it was there: its process is lost, and counted."""
    journal = tmp_path / "rank0.attempt0.1f"
    journal.mkdir()
    Writer(journal).append(Logged(0, 1, {"loss": 1.0}))
    first = Follower(tmp_path, {})
    first.find_new()
    assert [one.record for one in first.read(1, 1)] == [Logged(0, 1, {"loss": 1.0})]
    remove(journal)
    following = Follower(tmp_path, first.positions)
    following.find_new()

    assert following.read(100, 1) == [(journal.name, Lost(0))]
    assert following.missing == {journal.name}
    assert not following.alive


def test_a_journal_that_is_removed_while_its_process_lives(tmp_path: Path) -> None:
    """Its process is not held for dead for a minute; at its next check it makes the journal again."""
    claim = claim_journal(tmp_path, "rank0")
    writer = Writer(claim.path)
    writer.append(Logged(0, 1, {"loss": 1.0}))
    follower = Follower(tmp_path, {})
    follower.find_new()
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
    follower.find_new()
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

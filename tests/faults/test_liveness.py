"""A process looks dead only when it is: whatever it, or a cleaner, does to the files of its run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_rl
from otel_rl.export import Event
from otel_rl.recorder.agent.input.follow import Follower, NewRecord
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.journal.claim import HeldError, claim_journal
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import Finished, Logged, Record
from otel_rl.recorder.journal.writer import Writer
from tests.processes import items_of, journal_of, rows_of, run_python, start

_HABITS = {
    "copies": "import shutil; shutil.copytree(run.dir, f'copy{n}', symlinks=True)",
    "archives": "import shutil; shutil.make_archive(f'archive{n}', 'tar', run.dir)",
    "hashes": "import pathlib; [p.read_bytes() for p in run.dir.rglob('*') if p.is_file()]",
    "locks": "import fcntl; [fcntl.lockf(p.open('a'), fcntl.LOCK_SH) for p in run.dir.rglob('lock*')]",
    "cleans": "[p.unlink() for p in run.dir.rglob('*lock*') if p.is_file()]",
    "tidies": "[p.unlink() for p in (run.dir / 'local').glob('*/journals/*/*') if p.suffix != '.seg' and p.is_file()]",
}


@pytest.mark.slow
@pytest.mark.parametrize("habit", _HABITS)
def test_what_a_trainer_does_to_its_files(tmp_path: Path, habit: str) -> None:
    """A trainer that copies, hashes or cleans its own run directory is not lost, and no row is."""
    script = f"""
import contextlib, time, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", quiet=True, hardware=False)
for n in range(9):
    with run.step(n):
        run.log({{"loss": float(n)}})
    if n in (3, 6):
        with contextlib.suppress(OSError):  # the agent replaces a file at this moment
            {_HABITS[habit]}
        time.sleep(0.4)
assert run.finish(30)
"""
    run_python(script, tmp_path)
    run_dir = tmp_path / "runs" / "p" / "r"

    assert [row["step"] for row in rows_of(run_dir)] == list(range(9))
    assert "rl.process.lost" not in _events(run_dir)


@pytest.mark.slow
def test_descriptors_that_somebody_closed(tmp_path: Path) -> None:
    """A trainer whose descriptors in the run directory somebody closed takes its journal again."""
    script = """
import os, time, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", quiet=True, hardware=False)
run.log({"loss": 0.0}, step=0)
time.sleep(0.3)
for fd in os.listdir("/proc/self/fd"):
    if os.path.exists(f"/proc/self/fd/{fd}") and "/runs/p/r/" in os.readlink(f"/proc/self/fd/{fd}"):
        os.close(int(fd))
time.sleep(1.2)
for n in range(1, 5):
    with run.step(n):
        run.log({"loss": float(n)})
    time.sleep(0.6)
assert run.finish(30)
"""
    run_python(script, tmp_path)

    assert [row["step"] for row in rows_of(tmp_path / "runs" / "p" / "r")] == list(range(5))


@pytest.mark.slow
def test_a_second_agent_while_one_works(tmp_path: Path) -> None:
    """Deleting lock files lets no second agent in: each row is there once."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    for n in range(20):
        with run.step(n):
            run.log({"loss": float(n)})
        for path in run.dir.rglob("*lock*"):
            path.unlink()
    second = subprocess.run(
        [sys.executable, "-m", "otel_rl.cli", "agent", str(run.dir)], capture_output=True, text=True, check=False
    )

    assert "another agent" in second.stderr
    assert run.finish(30)
    assert [row["step"] for row in rows_of(run.dir)] == list(range(20))


@pytest.mark.slow
def test_once_waits_for_an_agent_that_lingers(tmp_path: Path) -> None:
    """It says for whom and for how long; then it delivers what that one left."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False, agent="off")
    run.log({"loss": 1.0}, step=0)
    run.finish()
    other = Lock(directories.at(run.dir).agent_lock)
    once = start([sys.executable, "-m", "otel_rl.cli", "agent", str(run.dir), "--once"], tmp_path)
    said = once.stderr.readline()  # type: ignore[union-attr]
    other.release()

    assert said == f"another agent runs in {run.dir}; waiting until it ends, at most 1 min 30 s\n"
    assert once.wait(60) == 0
    assert [row["step"] for row in rows_of(run.dir)] == [0]


@pytest.mark.slow
def test_once_while_a_trainer_records(tmp_path: Path) -> None:
    """There is nothing to wait for: the agent that is at work delivers it; the message says which journal it is."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    pid = agent_start.read_status(directories.at(run.dir)).pid
    once = start([sys.executable, "-m", "otel_rl.cli", "agent", str(run.dir), "--once"], tmp_path)
    said = once.communicate(timeout=60)[1]

    assert f"another agent (pid {pid}) runs in {run.dir} and delivers what {journal_of(run.dir).name}" in said
    assert once.returncode == 1
    assert run.finish(30)


def test_a_journal_that_grows_after_its_end(tmp_path: Path) -> None:
    """A process that was held for dead, and writes again, is heard again, and that is said."""
    follower, write = _followed(tmp_path)
    write(_logged(0))
    before = _read(follower)
    write(_logged(1))
    after = _read(follower)

    assert before == [_logged(0), Lost(0)]
    assert [type(record) for record in after] == [Revived, Logged]
    assert after[1] == _logged(1)
    assert follower.alive


def test_a_torn_tail_that_is_completed(tmp_path: Path) -> None:
    """A record that was half written when its process was held for dead is read when it is whole."""
    follower, write = _followed(tmp_path)
    write(_logged(0))
    segment = next((tmp_path / "rank0.attempt0").glob("*.seg"))
    first = segment.read_bytes()
    write(_logged(1))
    whole = segment.read_bytes()
    end = len(whole.rstrip(b"\0"))
    with segment.open("r+b") as file:
        file.write(whole[: end - 5] + bytes(len(whole) - end + 5))
    assert len(first.rstrip(b"\0")) < end - 5
    before = _read(follower)
    torn = follower.losses()["torn_bytes"]
    with segment.open("r+b") as file:
        file.write(whole)

    assert before == [_logged(0), Lost(0)]
    assert torn > 0
    assert _read(follower)[1:] == [_logged(1)]
    assert follower.losses()["torn_bytes"] == 0


def test_an_agent_that_starts_after_a_false_verdict(tmp_path: Path) -> None:
    """The next agent too reads on in a journal that the one before had given up."""
    follower, write = _followed(tmp_path)
    write(_logged(0))
    _read(follower)
    following = Follower(tmp_path, follower.positions)
    following.skip("rank0.attempt0")
    write(_logged(1))

    assert [type(record) for record in _read(following)] == [Revived, Logged]


@pytest.mark.parametrize(("known", "again"), [("finished", []), ("failed", ["finished"])])
def test_an_agent_that_starts_after_the_exit(tmp_path: Path, known: str, again: list[str]) -> None:
    """The next agent takes the exit status of a process only if the one before knew of another one."""
    script = "import otel_rl; otel_rl.init(agent='off', quiet=True, project='p', id='r', dir='.').log({'loss': 1.0})"
    run_python(script, tmp_path)
    journal = journal_of(tmp_path / "p" / "r")
    follower = Follower(journal.parent, {})
    read = [type(record) for record in _read(follower)]
    following = Follower(journal.parent, follower.positions)
    following.skip(journal.name, known, 0)

    assert read[-1] is Finished
    assert [record.outcome for record in _read(following) if isinstance(record, Finished)] == again


def test_a_record_behind_the_last_one(tmp_path: Path) -> None:
    """Records that another thread writes during `finish` are read, and the process is not lost."""
    follower, write = _followed(tmp_path)
    write(_logged(0))
    write(Finished(1))
    write(_logged(1))

    assert _read(follower) == [_logged(0), Finished(1), _logged(1)]
    assert not follower.alive


def test_revived_in_the_rows(tmp_path: Path) -> None:
    """Rows of a process that was taken for dead by mistake are all delivered, and an event reports it."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False)
    for n in range(6):
        with run.step(n):
            run.log({"loss": float(n)})
        if n == 2:
            run._session._claim._lock.release()  # what no call can do any more
            _wait_for_event(run.dir, "rl.process.lost")

    assert run.finish(30)
    assert {row["step"] for row in rows_of(run.dir)} == set(range(6))
    assert [name for name in _events(run.dir) if name.startswith("rl.process")] == [
        "rl.process.lost",
        "rl.process.revived",
    ]


def test_a_claim_that_died_half_way(tmp_path: Path) -> None:
    """Files of a process that died while it claimed do not stop the next one."""
    (tmp_path / ".rank0.1").mkdir()
    (tmp_path / ".rank0.1" / "lock").touch()
    claim = claim_journal(tmp_path, "rank0")

    assert claim.path.name.startswith("rank0.attempt0.")
    with pytest.raises(HeldError):
        claim_journal(tmp_path, "rank0")
    assert [path.name for path in tmp_path.iterdir() if path.name != ".rank0.1"] == [claim.path.name]
    claim.release()
    assert claim_journal(tmp_path, "rank0").path != claim.path


def _logged(step: int) -> Logged:
    return Logged(step, 1, {"loss": float(step)})


def _followed(journals: Path) -> tuple[Follower, Callable[[Record], None]]:
    """Return a follower, and what writes into a journal without a lock."""
    journal = journals / "rank0.attempt0"
    journal.mkdir()
    return Follower(journals, {}), Writer(journal).append


def _read(follower: Follower) -> list[Record]:
    follower.find_new()
    found: list[NewRecord] = []
    while more := follower.read(100, 1):
        found += more
    return [one.record for one in found]


def _events(run_dir: Path) -> list[str]:
    return [item.name for item in items_of(run_dir) if isinstance(item, Event)]


def _wait_for_event(run_dir: Path, name: str) -> None:
    deadline = time.monotonic() + 20
    while name not in _events(run_dir):
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""Many processes, and few descriptors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.input.follow import Follower
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.atomic_files import disk_usage
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Logged, Started
from otel_rl.recorder.journal.segments import segment_numbers
from otel_rl.serve.head.remote import Appender, RemoteJournal
from tests.processes import rows_of, run_python, start

_LIMIT = 256


@pytest.mark.slow
def test_a_process_without_standard_descriptors(tmp_path: Path) -> None:
    """Its output, and that of its children, is in no file of otel-rl, and the run is delivered."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, subprocess, otel_rl; run = otel_rl.init(exporters=['jsonl'])\n"
        "for file in (1, 2): os.write(file, b'unmistakable')\n"
        "with run.step(0): print('unmistakable'); run.log({'loss': 1.0})\n"
        "subprocess.run(['sh', '-c', 'echo unmistakable; echo unmistakable >&2'], check=True)\n"
        "open('said', 'w').write(f'{bool(run.finish(60))} {run.refused}')"
    )
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    start([*closing, sys.executable, str(script)], tmp_path).wait(100)

    assert (tmp_path / "said").read_text() == "True {}"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != script]
    assert [path for path in files if b"unmistakable" in path.read_bytes()] == []


@pytest.mark.slow
def test_an_agent_with_few_descriptors(tmp_path: Path) -> None:
    """An agent under a hard limit of 256 delivers the rows of 300 living ranks and 1,000 processes that ended."""
    recording = otel_rl.init(dir=tmp_path, agent="off", exporters=["jsonl"], quiet=True, id="r", role="first")
    recording.finish(0)
    directory = directories.at(recording.dir)
    script = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({_LIMIT}, {_LIMIT}));"
        "import os; os.execvp(sys.executable, [sys.executable, '-m', 'otel_rl.cli', 'agent', sys.argv[1], '--once'])"
    )
    with _processes(directory.journals, ended=1000, living=300):
        _, errors = start([sys.executable, "-c", script, str(recording.dir)], tmp_path).communicate(timeout=200)

    assert "still being recorded" in errors  # by those that live
    (row,) = rows_of(recording.dir)
    assert row["step"] == 0
    assert row["values"] == {"loss": 149.5}


def test_the_journals_that_ended_cost_no_look(tmp_path: Path) -> None:
    """Once they are read to their end, no file of an ended process is opened or asked for."""
    with _processes(tmp_path, ended=50, living=0):
        follower = Follower(tmp_path, {})
        follower.find_new()
        while follower.read(100, 1):
            pass
        for path in tmp_path.glob("*/*"):
            path.unlink()

        assert follower.read(100, 1) == []
        assert not follower.alive


def test_a_remote_journal_reserves_nothing(tmp_path: Path) -> None:
    """The journal of a process of another machine takes the disk that its records take, and no descriptor at rest."""
    before = _descriptors()
    journals = [RemoteJournal(tmp_path / f"rank{n}.attempt0@node", 1 << 30) for n in range(30)]
    for index in range(3):
        for journal in journals:
            journal.receive(index, Logged(index, 1, {"loss": 1.0}), 0.0)
            journal.close_files()
    found = Reader(tmp_path / "rank7.attempt0@node", AnyRecord).read()

    assert _descriptors() <= before + 1
    assert [record.step for record in found if isinstance(record, Logged)] == [0, 1, 2]
    assert segment_numbers(tmp_path / "rank7.attempt0@node") == [1]
    assert disk_usage(tmp_path) <= 30 * 8192


def test_a_remote_journal_keeps_its_limit(tmp_path: Path) -> None:
    """The oldest segments go, and a record that cannot be written leaves no half of itself."""
    appender = Appender(tmp_path, limit_bytes=3000, segment_bytes=1000)
    for step in range(300):
        appender.append(Logged(step, 1, {"loss": 1.0}))
    reader = Reader(tmp_path, AnyRecord)
    steps = []
    while records := reader.read():
        steps += [record.step for record in records if isinstance(record, Logged)]

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
    assert steps == list(range(300 - len(steps), 300))
    assert reader.skipped_bytes == 0


def test_a_remote_journal_on_a_full_disk(tmp_path: Path) -> None:
    """A record that finds no room is not there by half, and the next one is whole."""
    script = """
import resource, signal
from pathlib import Path
from otel_rl.serve.head.remote import Appender
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Logged
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
appender = Appender(Path("."), 1 << 20)
appender.append(Logged(0, 1, {"loss": 1.0}))
resource.setrlimit(resource.RLIMIT_FSIZE, (40, resource.RLIM_INFINITY))
try:
    appender.append(Logged(1, 1, {"loss": 1.0}))
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    appender.append(Logged(2, 1, {"loss": 1.0}))
reader = Reader(Path("."), AnyRecord)
print([record.step for record in reader.read()], reader.skipped_bytes)
"""
    assert run_python(script, tmp_path) == "[0, 2] 0\n"


@contextlib.contextmanager
def _processes(journals: Path, ended: int, living: int) -> Iterator[None]:
    """Make the journals of roles that ended and of ranks that live."""
    locks = []
    for n in range(ended):
        _journal(journals / f"actor{n}.attempt0", _started("actor", n, 1), Finished(2))
    for n in range(living):
        place = journals / f"rank{n}.attempt0"
        logged = [Logged(step, 2, {"loss": float(n)}) for step in range(2)]
        _journal(place, _started("", n, living), *logged)
        locks.append(Lock(place))
    yield
    for lock in locks:
        lock.release()


def _journal(place: Path, *records: Started | Finished | Logged) -> None:
    place.mkdir()
    appender = Appender(place, 1 << 30)
    for record in records:
        appender.append(record)
    appender.close()


def _started(role: str, rank: int, size: int) -> Started:
    return Started("r", 0, rank, size, size, role, 1, "host", 4096, 1)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

"""Processes that look alike: equal pids, one directory seen from two machines, all starts at the same moment."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.journal.claim import claim_journal, claim_role, remove_abandoned
from otel_rl.recorder.journal.segments import segment_numbers

_NEW_PIDS = 0x20000000
_STARTS = """
import ctypes, os, sys, time
import otel_rl, otel_rl.recorder.trainer.session

count, apart = int(sys.argv[1]), sys.argv[2] == "apart"
starts, children = time.time() + 0.3, []
for number in range(count):
    child = os.fork()
    if child == 0:
        if apart:  # in a PID namespace of its own, where it is process 1
            assert ctypes.CDLL(None).unshare(0x20000000) == 0
            inner = os.fork()
            if inner:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
        if number < count // 2:
            place = {"rank": number, "world_size": count}
        else:
            place = {"role": ["reward", "actor", "rollout"][number % 3]}
        time.sleep(max(0, starts - time.time()))
        try:
            run = otel_rl.init(dir="runs", project="p", id="r", quiet=True, agent="off", exporters=[], **place)
            run.log({"loss": 1.0}, step=0)
            time.sleep(5)  # the ranks of one start run at the same time
            run.finish(0)
        except BaseException as error:
            print(f"{number}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
print("failed:", sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


@pytest.mark.slow
@pytest.mark.parametrize("pids", ["apart", "together"])
def test_starts_at_the_same_moment(tmp_path: Path, pids: str) -> None:
    """24 ranks and roles that start at once all record, each into its own journal; also where all are process 1."""
    if pids == "apart" and not _may_have_equal_pids():
        pytest.skip("PID namespaces need privileges")
    script = tmp_path / "starts.py"
    script.write_text(_STARTS)
    found = subprocess.run(
        [sys.executable, script, "24", pids], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    journals = list((tmp_path / "runs" / "p" / "r" / "local").glob("*/journals/*"))

    assert found.stdout == "failed: 0\n", found.stderr
    assert {path.name.rpartition(".")[0] for path in journals if path.name.startswith("rank")} == {
        f"rank{n}.attempt0" for n in range(12)
    }
    assert len(journals) == 24
    assert all(segment_numbers(path) == [1] for path in journals)


def test_a_run_that_goes_on_at_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the run directory is shared and the journals are not, no attempt has the number of an earlier one."""
    attempts = []
    for machine in ("a", "b", "a"):
        monkeypatch.setattr("socket.gethostname", lambda machine=machine: machine)
        run = otel_rl.init(dir=tmp_path / "runs", project="p", id="r", quiet=True, agent="off", exporters=[])
        attempts.append(run.attempt)
        run.finish(0)

    assert attempts == [0, 1, 2]
    assert {path.name for path in (run.dir / "local").iterdir()} == {"a", "b"}


def test_roles_of_the_same_name(tmp_path: Path) -> None:
    """Each process of a role has a number of its own among those that live, and a number that is free is taken."""
    first, second = (claim_role(tmp_path, "actor") for _ in range(2))
    first[0].release()
    third = claim_role(tmp_path, "actor")

    assert [number for _, number in (first, second, third)] == [0, 1, 0]


def test_a_file_that_is_replaced_by_two(tmp_path: Path) -> None:
    """Nobody who replaces a file uses the temporary name of another, whatever their pids are."""
    script = """
import os
from pathlib import Path
from otel_rl.recorder.files.atomic_files import write_atomically
os.getpid = lambda: 1
for n in range(300):
    write_atomically(Path("file"), b"x" * 5000)
"""
    processes = [subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) for _ in range(2)]

    assert [process.wait(60) for process in processes] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_replaced(tmp_path: Path) -> None:
    """A write that fails leaves nothing behind."""
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file", b"x")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_claim_left_is_removed(tmp_path: Path) -> None:
    """Old files of a process that died while it claimed are removed; locked ones are not."""
    for name in (".old", ".young", ".held.attempt0"):
        (tmp_path / name).mkdir()
    for name in (".old", ".held.attempt0"):
        os.utime(tmp_path / name, (0, 0))
    held = claim_journal(tmp_path, "rank0")
    os.utime(held.path, (0, 0))
    held.path.rename(tmp_path / ".rank0.new")
    shutil.rmtree(tmp_path / ".held.attempt0")
    remove_abandoned(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [".rank0.new", ".young"]


def _may_have_equal_pids() -> bool:
    child = os.fork()
    if child == 0:
        os._exit(ctypes.CDLL(None).unshare(_NEW_PIDS) != 0)
    return os.waitpid(child, 0)[1] == 0

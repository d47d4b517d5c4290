"""Trainer processes with all their descendants, which are real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from otel_rl.recorder.agent.hardware.processes import Processes, TrainerProcess
from tests.collector import wait_for

_GRANDCHILD = """
import sys, time
held = bytearray(64 << 20)
end = time.process_time() + 0.5
while time.process_time() < end: pass
open(sys.argv[1], "w").close()
sys.stdin.read()
"""
_TRAINER = f"""
import subprocess, sys
child = f'''import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]]).wait()'''
subprocess.Popen([sys.executable, "-c", child, {_GRANDCHILD!r}, sys.argv[1]])
sys.stdin.read()
"""


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[psutil.Process]:
    """A process with a child that has a child, which holds 64 MiB and has worked for half a second."""
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-c", _TRAINER, str(ready)], stdin=subprocess.PIPE)
    wait_for(ready.exists, "the grandchild does not work")
    yield psutil.Process(process.pid)
    for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        one.kill()
    process.communicate()


def watched(*pids: int, role: str = "") -> list[TrainerProcess]:
    return [TrainerProcess(pid, rank, role, None, time.time_ns()) for rank, pid in enumerate(pids)]


def values(processes: Processes, rank: int = 0) -> dict[str, float]:
    return {p.metric: p.value for p in processes.read() if dict(p.attributes)["rl.rank"] == rank}


def test_children_of_children_are_in_the_total(trainer: psutil.Process) -> None:
    """Their memory, their CPU time, their threads and open files."""
    found = values(Processes(lambda: watched(trainer.pid), time.time_ns))

    assert found["rl.process.count"] == 3
    assert found["process.memory.usage"] > 64 << 20
    assert found["process.cpu.time"] > 0.5
    assert found["process.thread.count"] >= 3
    assert found["process.unix.file_descriptor.count"] >= 9


def test_descendants_whose_parent_ended_and_that_end(trainer: psutil.Process) -> None:
    """The kernel gives them another parent, and they still count; their CPU time does so even after their end."""
    processes = Processes(lambda: watched(trainer.pid), time.time_ns)
    before = values(processes)
    child, grandchild = trainer.children(recursive=True)
    child.kill()
    wait_for(lambda: child.status() == "zombie", "the child lives")
    orphaned = values(processes)
    grandchild.kill()
    wait_for(lambda: not grandchild.is_running() or grandchild.status() == "zombie", "the grandchild lives")
    after = values(processes)

    assert after["process.cpu.time"] >= orphaned["process.cpu.time"] >= before["process.cpu.time"] > 0.5
    assert orphaned["process.memory.usage"] > 64 << 20 > after["process.memory.usage"]


def test_utilisation_is_that_since_the_last_look(trainer: psutil.Process) -> None:
    """Nothing for the first time; then CPU seconds over seconds, as part of the CPUs that the process may run on."""
    clock = iter([0, 2 * 10**9])
    processes = Processes(lambda: watched(trainer.pid), lambda: next(clock))
    first, second = values(processes), values(processes)

    assert "process.cpu.utilization" not in first
    busy = (second["process.cpu.time"] - first["process.cpu.time"]) / 2
    assert second["process.cpu.utilization"] == busy / len(os.sched_getaffinity(trainer.pid))


def test_whoever_is_watched_itself_is_counted_once(trainer: psutil.Process) -> None:
    """The memory of workers does not count for their driver."""
    (child,) = trainer.children()
    processes = Processes(lambda: watched(trainer.pid, child.pid), time.time_ns)

    assert values(processes, rank=0)["rl.process.count"] == 1
    assert values(processes, rank=1)["rl.process.count"] == 2


def test_the_agent_is_not_the_trainers() -> None:
    """Though it mostly is its child: here this process plays the agent, and its own parent the trainer."""
    parent = psutil.Process(os.getppid())
    before = {process.pid for process in parent.children(recursive=True)}
    processes = Processes(lambda: watched(parent.pid), time.time_ns)
    list(processes.read())
    (tree,) = processes._trees.values()

    assert os.getpid() in before
    assert os.getpid() not in {process.pid for process in tree.members.values()}


@pytest.mark.parametrize("pid", [0x3FFFFF, 1])
def test_another_process_of_the_same_number_is_none(pid: int) -> None:
    """One that does not exist; and one that came after the trainer had begun to record."""
    one = TrainerProcess(pid, 0, "", None, 10**9)

    assert list(Processes(lambda: [one], time.time_ns).read()) == []


def test_a_role_is_told(trainer: psutil.Process) -> None:
    """Beside the rank, on each point, sorted by name."""
    points = list(Processes(lambda: watched(trainer.pid, role="reward"), time.time_ns).read())

    assert {p.attributes for p in points} == {(("rl.process.scope", "tree"), ("rl.rank", 0), ("rl.role", "reward"))}

"""The ends of processes that left no record, as the kernel knows them: real processes, and a real cgroup."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from otel_rl.recorder.agent.input.deaths import Deaths, MemoryKills, exit_status, was_killed_for_memory
from otel_rl.recorder.agent.input.follow import NewRecord
from otel_rl.recorder.agent.steps.state import Journal
from otel_rl.recorder.files.processes import process
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, Record, Started
from tests.collector import wait_for

_MEMORY = Path("/sys/fs/cgroup/memory")
SLURM = {"SLURM_JOB_ID": "7"}


def ended(
    script: str, environ: Mapping[str, str] | None = None, *, is_reaped: bool, is_stopped: bool = False
) -> Record:
    """Return what becomes of the loss of a process that runs a script, which waits for a line first."""
    process = subprocess.Popen([sys.executable, "-c", f"input()\n{script}"], stdin=subprocess.PIPE, text=True)
    journals = {"rank0": Journal(Started("r", 0, 0, 1, 1, "", process.pid, "h", 4096, time.time_ns()))}
    deaths = Deaths(environ or {}, lambda: is_stopped)
    deaths.watch(journals)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    if is_reaped:
        process.wait()
    else:
        wait_for(lambda: exit_status(process.pid, None) is not None, "it does not end")
    (found,) = deaths.explained([NewRecord("rank0", Lost(5))], journals)
    process.communicate()
    return found.record


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import os; os._exit(0)", Lost(5, "exit", 0)),
        ("import os; os._exit(3)", Lost(5, "exit", 3)),
        ("import os; os.kill(os.getpid(), 9)", Lost(5, "signal", 137)),
        ("import os; os.kill(os.getpid(), 11)", Finished(5, "crashed", ("SIGSEGV", "Segmentation fault"), 139)),
    ],
)
def test_a_process_that_its_parent_has_not_waited_for(script: str, expected: Record) -> None:
    """Its exit status is in `/proc`."""
    assert ended(script, is_reaped=False) == expected


def has_exit_information() -> bool:
    """Return whether this kernel keeps the exit status for whoever holds a descriptor."""
    process = subprocess.Popen(["true"])
    descriptor = os.pidfd_open(process.pid)
    process.wait()
    known = exit_status(process.pid, descriptor) is not None
    os.close(descriptor)
    return known


def test_a_process_that_its_parent_has_waited_for() -> None:
    """A newer kernel still has its exit status; with an older one it is lost for an unknown cause."""
    expected = Lost(5, "exit", 3) if has_exit_information() else Lost(5)

    assert ended("import os; os._exit(3)", is_reaped=True) == expected


@pytest.mark.parametrize(
    ("environ", "is_stopped", "cause"),
    [
        (SLURM, True, "slurm"),
        (SLURM, False, "signal"),
        (SLURM | {"SLURM_JOB_END_TIME": "now"}, False, "slurm_time_limit"),
        ({}, True, "signal"),
    ],
)
def test_a_job_that_slurm_ends(environ: dict[str, str], cause: str, *, is_stopped: bool) -> None:
    """Slurm signals every process of the job, this agent too; the variables of the job have its time limit."""
    environ = {name: str(int(time.time())) if value == "now" else value for name, value in environ.items()}
    found = ended("import os; os.kill(os.getpid(), 9)", environ, is_reaped=False, is_stopped=is_stopped)

    assert found == Lost(5, cause, 137)


def test_a_process_that_slurm_ends_gently() -> None:
    """The record of its signal says so."""
    journals = {"rank0": Journal(Started("r", 0, 0, 1, 1, "", 1, "h", 4096, 0))}
    end = Finished(5, "cancelled", ("SIGTERM", "Terminated"), 143)
    (found,) = Deaths(SLURM, lambda: True).explained([NewRecord("rank0", end)], journals)

    assert isinstance(found.record, Finished)
    assert found.record.error == ("SIGTERM", "Slurm job 7 was canceled or preempted")


def test_a_process_that_became_another_program(tmp_path: Path) -> None:
    """It lives, but does not record."""
    script = "import os, sys; print(flush=True); os.execv(sys.executable, [sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        journals = {"rank0": Journal(Started("r", 0, 0, 1, 1, "", process.pid, "h", 4096, time.time_ns()))}
        (found,) = Deaths({}, lambda: False).explained([NewRecord("rank0", Lost(5))], journals)
        process.kill()

    assert found.record == Lost(5, "exec")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup whose processes may use 48 MiB."""
    place = _MEMORY / f"otel-rl-{os.getpid()}"
    try:
        place.mkdir()
        (place / "memory.limit_in_bytes").write_text(str(48 << 20))
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield place
    for _ in range(50):
        with contextlib.suppress(OSError):
            place.rmdir()
            break
        time.sleep(0.1)


def test_a_kill_for_memory(cgroup: Path) -> None:
    """The kernel kills the process in its cgroup, and counts that; where this user may read the log, it is named."""
    join = f"import os; open('{cgroup}/cgroup.procs', 'w').write(str(os.getpid()))"
    script = f"{join}\nprint(flush=True); input()\nx = b'x' * (200 << 20)"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    journals = {"rank0": Journal(Started("r", 0, 0, 1, 1, "", process.pid, "h", 4096, time.time_ns()))}
    deaths = Deaths({}, lambda: False)
    deaths.watch(journals)
    process.communicate("\n")
    (found,) = deaths.explained([NewRecord("rank0", Lost(5))], journals)

    assert process.returncode == -signal.SIGKILL
    assert found.record == Lost(5, "oom_kill", 137)
    assert was_killed_for_memory(process.pid) in (True, os.getuid() != 0)


def test_kills_that_were_before(tmp_path: Path) -> None:
    """They do not explain a death now, nor do those of half a minute ago."""
    events = tmp_path / "memory.events"
    events.write_text("oom 3\noom_kill 3\n")
    kills = MemoryKills(events, 0)
    before = kills.are_recent(1)
    events.write_text("oom 4\noom_kill 4\n")

    assert (before, kills.are_recent(2), kills.are_recent(40)) == (False, True, False)


def test_a_process_that_names_itself() -> None:
    """Its name can have parentheses, spaces and bytes of no text: its identity and its status are read behind it."""
    name = Path("/proc/self/comm").read_bytes()
    usual = process(os.getpid())
    try:
        Path("/proc/self/comm").write_bytes(b"\xff) Z 1 (")
        named = process(os.getpid())
        status = exit_status(os.getpid(), None)
    finally:
        Path("/proc/self/comm").write_bytes(name)

    assert named == usual
    assert status is None

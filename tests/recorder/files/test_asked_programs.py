"""Programs that are asked something: groups of processes, with limits of time and of output."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from otel_rl.recorder.files.asked_programs import ask
from otel_rl.recorder.files.programs import TooLate
from tests.collector import wait_for


def shell(script: str, within: float = 30.0) -> tuple[int, bytes, bytes]:
    """Return how a script of the shell ends, and what it prints."""
    return ask(["/bin/sh", "-c", script], within=within)


def lives(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_program_prints() -> None:
    """Its code, and both outputs, are returned."""
    assert shell("echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")


def test_a_question_that_is_larger_than_a_pipe() -> None:
    """It is written while the answer is read."""
    question = os.urandom(1 << 20)

    assert ask(["cat"], question=question, within=30, most=2 << 20).output == question


def test_a_program_that_reads_nothing() -> None:
    """It need not read its question."""
    assert ask(["true"], question=bytes(1 << 20), within=30).code == 0


@pytest.mark.parametrize("pipe", ["", ">&2"])
def test_a_program_that_prints_without_end(pipe: str) -> None:
    """It is killed in time, and its output takes no memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLate):
        shell(f"yes spam {pipe}", within=1.0)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_a_long_output() -> None:
    """The first bytes of the output and the last ones of the errors are kept; the program ends by itself."""
    code = "import sys; print('a' * 300000 + 'z'); print('a' * 300000 + 'z', file=sys.stderr)"
    answer = ask([sys.executable, "-c", code], within=30, most=1000)

    assert (answer.code, answer.output, answer.errors[-2:]) == (0, b"a" * 1000, b"z\n")
    assert len(answer.errors) == 1000


def test_a_child_in_the_background(tmp_path: Path) -> None:
    """The program has ended, although its child keeps its output open; the child goes on."""
    code, output, _ = shell(f"sleep 60 & echo $! > {tmp_path}/pid; echo done")
    pid = int((tmp_path / "pid").read_text())

    assert (code, output) == (0, b"done\n")
    assert lives(pid)
    os.kill(pid, 9)


@pytest.mark.parametrize("script", ["sleep 60 & sleep 60", "(sleep 60; true) & wait", "trap '' TERM; sleep 60 & wait"])
def test_a_program_that_is_too_late(tmp_path: Path, script: str) -> None:
    """All that it has started ends with it."""
    with pytest.raises(TooLate):
        shell(f"echo $$ > {tmp_path}/pid; {script}", within=0.5)
    group = int((tmp_path / "pid").read_text())

    def members() -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(entry.name)) == group and lives(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    wait_for(lambda: members() == [], f"{members()} go on", 10)


def test_the_limit_is_of_the_program() -> None:
    """One that has ended is not waited for, however long its limit is."""
    shell("sleep 60 & exit 0", within=float("inf"))


def test_a_program_of_no_group_of_this_process() -> None:
    """It leads a session of its own: Ctrl-C in a terminal does not reach it."""
    assert int(shell("ps -o sid= -p $$")[1]) != os.getsid(0)


def test_ctrl_c_at_a_program(tmp_path: Path) -> None:
    """Whatever ends the wait ends the program, although it has a session of its own."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            shell(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    finally:
        signal.signal(signal.SIGALRM, before)

    wait_for(lambda: not lives(int((tmp_path / "pid").read_text())), "it goes on")

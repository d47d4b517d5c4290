"""The stacks of processes that do not record, or are stopped, by py-spy: if it is installed and ptrace is allowed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from otel_rl.autopsy import kernel
from otel_rl.autopsy.evidence import Frame, Thread
from otel_rl.autopsy.stacks import source_of
from otel_rl.recorder.files.asked_programs import ask
from otel_rl.recorder.files.programs import TooLate

_WITHIN_S = 5.0
_MOST_WHY, _MOST_BYTES = 200, 16 << 20


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None


def program() -> str | None:
    """Return the path of py-spy; `None` if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def stacks(pid: int, program: str) -> tuple[Thread, ...] | str:
    """Return the stacks of a process with native frames, the main thread first, or why there are none.

    A process that is stopped has no native frames: py-spy would stop it itself for them.
    """
    why = ""
    for option in ("--native", "--nonblocking"):
        try:
            command = [program, "dump", "--json", option, "--pid", str(pid)]
            made = ask(command, within=_WITHIN_S, most=_MOST_BYTES)
            if not made.code:
                return _threads(pid, msgspec.json.decode(made.output, type=list[_Thread]))
            why = why or made.errors.decode(errors="replace").strip().partition("\n")[0][:_MOST_WHY]
        except (OSError, ValueError, TooLate) as error:
            why = why or type(error).__name__
    return f"py-spy: {why or 'failed'}"


def _threads(pid: int, threads: list[_Thread]) -> tuple[Thread, ...]:
    # To the kernel, the id of the main thread is that of the process.
    threads.sort(key=lambda thread: thread.os_thread_id != pid)
    return tuple(
        Thread(
            tuple(
                Frame(frame.filename, frame.line, frame.name.rpartition(".")[2], source_of(frame.filename, frame.line))
                for frame in thread.frames
            ),
            thread.thread_name or "",
            number := thread.os_thread_id or 0,
            kernel.view_of_thread(pid, number, 0.0) if number else None,
        )
        for thread in threads
    )

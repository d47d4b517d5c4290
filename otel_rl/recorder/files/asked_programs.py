"""Programs that are asked something and end: a group of processes, with limits of time and of output.

A program can start others. All are in one process group, and what is there at the deadline is ended with it. A program
has ended when its process has: a child that it leaves in the background may keep a pipe open. Output beyond a
limit is read, so that it does not wait, and dropped.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.files.programs import PIPE, Program, TooLate, start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

MOST_BYTES = 1 << 20
"""Bytes of output that are kept: the first ones of standard output, the last ones of standard error."""
_AT_ONCE, _FULL_PIPES = 1 << 16, 16
"""Bytes that are read at once, and as many times as a pipe of the largest usual size needs."""
_LOOK_S, _DIES_S = 0.02, 1.0
"""Seconds between two looks whether a program has ended, and until one that was killed has."""


class ProgramAnswer(NamedTuple):
    """How a program has ended, and what it printed."""

    code: int
    output: bytes
    errors: bytes


def ask(
    command: Sequence[str],
    *,
    within: float | None = None,
    question: bytes = b"",
    most: int = MOST_BYTES,
    environment: Mapping[str, str] | None = None,
) -> ProgramAnswer:
    """Run a program to its end, and return its exit code and what it printed.

    Args:
        command: The program and its arguments; no shell reads them.
        within: Seconds after which its group is killed; `None` for never.
        question: What it reads from its standard input.
        most: Bytes of output that are kept.
        environment: Its environment; by default that of this process.

    Raises:
        OSError: It cannot be started.
        TooLate: It was killed.
    """
    process = start(command, environment=environment, reads=PIPE, output=PIPE, errors=PIPE, is_detached=True)
    return finish(process, within=within, question=question, most=most)


def finish(process: Program, *, within: float | None, question: bytes = b"", most: int = MOST_BYTES) -> ProgramAnswer:
    """Wait for the end of a program that was started with a session of its own, and read its pipes; as `ask`.

    Whatever ends the wait early, such as Ctrl-C, ends the program.

    Raises:
        TooLate: It was killed.
    """
    until = None if within is None else time.monotonic() + within
    kept: dict[int, bytearray] = {}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        stack.callback(end_group, process)
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            stack.callback(_close, pipe)
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_WRITE if pipe is process.stdin else selectors.EVENT_READ)
            kept[pipe.fileno()] = bytearray()
        numbers = [pipe.fileno() if pipe is not None else -1 for pipe in (process.stdout, process.stderr)]
        asked = memoryview(question)
        while True:
            has_ended = process.poll() is not None
            # When it has ended, what is in the pipes then; a child that it has left may go on to write.
            for _ in range(_FULL_PIPES if has_ended else 1):
                for key, _ in selector.select(0 if has_ended else _LOOK_S):
                    if key.fileobj is process.stdin:
                        asked = _written(process, selector, asked)
                    elif not _read(key.fd, kept[key.fd], most, is_end_kept=key.fileobj is process.stderr):
                        selector.unregister(key.fileobj)
            if has_ended:
                break
            if until is not None and time.monotonic() > until:
                raise TooLate(process.args, within or 0.0)
        output, errors = (bytes(kept.get(number, b"")) for number in numbers)
        return ProgramAnswer(process.returncode, output, errors)


def end_group(process: Program) -> None:
    """Kill a program that leads a group, with all that it has started; wait for it, but not for long.

    One that waits for a driver or a file server that is gone does not end.
    """
    if process.poll() is None:  # until it is waited for, nothing else has its number
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TooLate):
        process.wait(_DIES_S)


def _written(process: Program, selector: selectors.BaseSelector, asked: memoryview) -> memoryview:
    """Write what fits into the standard input of a program, and close it at the end; return what is left."""
    assert process.stdin is not None
    with contextlib.suppress(BlockingIOError):
        try:
            asked = asked[os.write(process.stdin.fileno(), asked[:_AT_ONCE]) :] if asked else asked
        except BrokenPipeError:  # it reads no more
            asked = asked[:0]
    if not asked:
        selector.unregister(process.stdin)
        _close(process.stdin)
    return asked


def _read(number: int, kept: bytearray, most: int, *, is_end_kept: bool) -> bool:
    """Read what is in a pipe, and keep what is within the limit; return false at its end."""
    try:
        data = os.read(number, _AT_ONCE)
    except BlockingIOError:
        return True
    if is_end_kept:
        kept += data
        del kept[:-most]
    else:
        kept += data[: max(0, most - len(kept))]
    return bool(data)


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        pipe.close()

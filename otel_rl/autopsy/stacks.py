"""The stacks of all threads of processes that record: asked for by a signal, which `faulthandler` answers.

The handler is in C, so it needs neither the GIL nor a thread that runs. The signal goes to one thread. One that runs is
best: it is in no system call, and if it holds the GIL, no other thread changes its frames meanwhile. The next best one
is in a call that the kernel goes on with. Calls such as `poll` end with EINTR, and Python repeats them (PEP 475). A
write that has begun would return early, so a process whose only thread writes is not asked.
"""

from __future__ import annotations

import ast
import ctypes
import os
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.autopsy.evidence import Frame, Thread
from otel_rl.autopsy.kernel import catches, files_of, stat_of, syscall_of, threads_of
from otel_rl.errors.redaction import redacted
from otel_rl.journal.own_files import open_regular, read_shown

if TYPE_CHECKING:
    from collections.abc import Iterable

_WITHIN_S, _SETTLED_S, _POLL_S = 2.0, 0.1, 0.02
"""Seconds until a process has answered, and without a new byte until its answer counts as complete."""
_MOST_BYTES = 1 << 20
_MOST_SOURCE = 160
_MOST_THREADS = 256
_OWN = "otel_rl/trainer/flight_recorder.py"
_GOES_ON = ("futex", "read", "recvfrom", "recvmsg", "accept", "accept4", "wait4", "waitid", "flock", "fcntl", "openat")
_CUT_SHORT = ("write", "writev", "pwrite64", "sendto", "sendmsg", "sendfile")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class Asked(NamedTuple):
    """A process that can be asked: its id, the signal, and the file into which it writes."""

    pid: int
    number: int
    file: Path


def ask(processes: Iterable[Asked]) -> dict[int, tuple[Thread, ...] | str]:
    """Return the stacks of processes, the main thread first, or why there are none; all are asked at once."""
    found: dict[int, tuple[Thread, ...] | str] = {}
    waiting: dict[Asked, int] = {}
    for one in processes:
        try:
            if why := _why_not(one):
                found[one.pid] = why
                continue
            if (size := one.file.stat().st_size) > _MOST_BYTES:
                os.truncate(one.file, 0)  # the process appends
                size = 0
            if thread := _best_thread(one):
                _signal(one, thread)
                waiting[one] = size
            else:
                found[one.pid] = "a signal would cut short what it writes"
        except OSError as error:
            found[one.pid] = str(error.strerror or error)
    for one, text in _answers(waiting):
        found[one.pid] = parsed(text) or "it did not answer"
    return found


def _why_not(one: Asked) -> str:
    """Return why a process must not get the signal: it would end it, or write into another file; empty if it may."""
    if str(one.file.resolve()) not in files_of(one.pid).values():
        return "it has closed the file for them, or it is another user's"
    if not catches(one.pid, one.number):
        return "it no longer handles the signal that asks for them"
    stat = stat_of(one.pid)
    return "it is stopped" if stat is not None and stat.state in "Tt" else ""


def parsed(text: str) -> tuple[Thread, ...]:
    """Return the threads of the text that `faulthandler` writes, the main thread first."""
    threads: list[Thread] = []
    frames: list[Frame] = []
    name = None
    for line in text.splitlines():
        if (begins := _THREAD.match(line)) is not None:
            if name is not None:
                threads.append(Thread(tuple(frames), name))
            name, frames = begins[1] or "", []
        elif (frame := _FRAME.match(line)) is not None and name is not None:
            file, number = _literal(frame[1]), int(frame[2])
            frames.append(Frame(file, number, _literal(frame[3]), source_of(file, number)))
    if name is not None:
        threads.append(Thread(tuple(frames), name))
    own = [one for one in threads if not any(frame.file.endswith(_OWN) for frame in one.frames)]
    return tuple(reversed(own))[:_MOST_THREADS]  # the newest thread comes first


def source_of(file: str, number: int) -> str:
    """Return a line of a source file, without secrets; empty if it cannot be read."""
    lines = _source(file)
    return redacted(lines[number - 1].strip()[:_MOST_SOURCE]) if 0 < number <= len(lines) else ""


@cache
def _source(file: str) -> list[str]:
    with suppress(OSError, ValueError):
        return read_shown(Path(file)).decode("utf-8", "replace").splitlines()
    return []


def _literal(text: str) -> str:
    """Return a text without the escapes that `faulthandler` writes for what is not ASCII."""
    if "\\" in text:
        with suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(f"'{text}'"))
    return text


def _signal(one: Asked, thread: int) -> None:
    try:
        tgkill = ctypes.CDLL(None, use_errno=True).tgkill
    except AttributeError:  # another C library: the kernel chooses the thread
        os.kill(one.pid, one.number)
        return
    if tgkill(one.pid, thread, one.number) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _best_thread(one: Asked) -> int:
    """Return the thread that a signal disturbs least; 0 if it would cut short what each of them writes."""
    found: list[tuple[int, int]] = []
    for thread in threads_of(one.pid)[:_MOST_THREADS]:
        stat, call = stat_of(one.pid, thread), syscall_of(one.pid, thread)[0]
        if stat is not None and catches(one.pid, one.number, thread) and call not in _CUT_SHORT:
            found.append((0 if stat.state == "R" else 1 if call in _GOES_ON else 2, thread))
    return min(found, default=(0, 0))[1]


def _answers(waiting: dict[Asked, int]) -> Iterable[tuple[Asked, str]]:
    deadline = time.monotonic() + _WITHIN_S
    sizes, since = dict(waiting), dict.fromkeys(waiting, time.monotonic())
    while waiting:
        time.sleep(_POLL_S)
        now = time.monotonic()
        for one, begun in list(waiting.items()):
            size = one.file.stat().st_size if one.file.exists() else 0
            if size != sizes[one]:
                sizes[one], since[one] = size, now
            elif (size > begun and now - since[one] > _SETTLED_S) or now > deadline:
                del waiting[one]
                yield one, _read(one.file, begun)


def _read(file: Path, begin: int) -> str:
    with suppress(OSError), open_regular(file, links=False) as opened:
        opened.seek(begin)
        return opened.read(_MOST_BYTES).decode("ascii", "replace")
    return ""

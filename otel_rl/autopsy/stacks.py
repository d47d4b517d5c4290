"""The stacks of all threads of processes that record, as `faulthandler` writes them.

A thread of the process is asked first: it holds the GIL while it answers. It cannot answer while C code holds the GIL,
and a forked child does not have it. Then a signal asks, whose handler is in C and needs neither the GIL nor a thread
that runs. The signal goes to one thread. One that runs is best: it is in no system call. The next best one is in a call
that the kernel goes on with. Calls such as `poll` end with EINTR, and Python repeats them (PEP 475). A write that has
begun would return early, so a process whose only thread writes is not asked.
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
from otel_rl.autopsy.questions import put
from otel_rl.errors.redaction import redacted
from otel_rl.journal.own_files import open_regular, read_shown
from otel_rl.journal.signals import STACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SOON_S, _WITHIN_S = 1.0, 2.0
"""Seconds until a process has answered the question, and the signal."""
_SETTLED_S, _POLL_S = 0.1, 0.02
"""Seconds without a new byte until an answer counts as complete."""
_MOST_BYTES = 1 << 20
_MOST_SOURCE = 160
_MOST_THREADS = 256
_OWN = "otel_rl/trainer/questions.py"
_GOES_ON = ("futex", "read", "recvfrom", "recvmsg", "accept", "accept4", "wait4", "waitid", "flock", "fcntl", "openat")
_CUT_SHORT = ("write", "writev", "pwrite64", "sendto", "sendmsg", "sendfile")
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class Asked(NamedTuple):
    """A process that can be asked.

    Attributes:
        pid: Its id.
        number: The signal.
        file: The file into which it writes, in the journal.
        has_thread: If true, a thread of it reads questions; a forked child has none.
    """

    pid: int
    number: int
    file: Path
    has_thread: bool = True


def ask(processes: Iterable[Asked]) -> dict[int, tuple[Thread, ...] | str]:
    """Return the stacks of processes, the main thread first, or why there are none; all are asked at once."""
    every = list(processes)
    found = _asked([one for one in every if one.has_thread], _question, _SOON_S)
    silent = [one for one in every if not isinstance(found.get(one.pid), tuple)]
    return found | _asked(silent, _signal, _WITHIN_S)


def _asked(
    processes: Iterable[Asked], way: Callable[[Asked], str], within: float
) -> dict[int, tuple[Thread, ...] | str]:
    """Ask processes in one way, which returns why it cannot; return the stacks, or why there are none."""
    found: dict[int, tuple[Thread, ...] | str] = {}
    waiting: dict[Asked, int] = {}
    for one in processes:
        try:
            if (size := one.file.stat().st_size) > _MOST_BYTES:
                os.truncate(one.file, 0)  # the process appends
                size = 0
            if why := _why_not(one) or way(one):
                found[one.pid] = why
            else:
                waiting[one] = size
        except OSError as error:
            found[one.pid] = str(error.strerror or error)
    return found | {one.pid: parsed(text) or "it did not answer" for one, text in _answers(waiting, within)}


def _question(one: Asked) -> str:
    return "" if put(one.pid, one.file.parent, STACKS) else "nothing reads its questions"


def _why_not(one: Asked) -> str:
    """Return why a process must not get the signal: it would end it, or write into another file; empty if it may."""
    if str(one.file.resolve()) not in files_of(one.pid).values():
        return "it has closed the file for them, or it is another user's"
    if not catches(one.pid, one.number):
        return "it no longer handles the signal that asks for them"
    stat = stat_of(one.pid)
    return "it is stopped" if stat is not None and stat.state in "Tt" else ""


def parsed(text: str) -> tuple[Thread, ...]:
    """Return the threads of the text that `faulthandler` writes, the main thread first; of several texts the last."""
    found: dict[str, tuple[str, list[Frame]]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if (begins := _THREAD.match(line)) is not None:
            frames = []
            found.pop(begins[1], None)
            found[begins[1]] = begins[2] or "", frames
        elif (frame := _FRAME.match(line)) is not None:
            file, number = _literal(frame[1]), int(frame[2])
            frames.append(Frame(file, number, _literal(frame[3]), source_of(file, number)))
    threads = [Thread(tuple(frames), name) for name, frames in found.values()]
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


def _signal(one: Asked) -> str:
    if not (thread := _best_thread(one)):
        return "a signal would cut short what it writes"
    try:
        tgkill = ctypes.CDLL(None, use_errno=True).tgkill
    except AttributeError:  # another C library: the kernel chooses the thread
        os.kill(one.pid, one.number)
        return ""
    if tgkill(one.pid, thread, one.number) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ""


def _best_thread(one: Asked) -> int:
    """Return the thread that a signal disturbs least; 0 if it would cut short what each of them writes."""
    found: list[tuple[int, int]] = []
    for thread in threads_of(one.pid)[:_MOST_THREADS]:
        stat, call = stat_of(one.pid, thread), syscall_of(one.pid, thread)[0]
        if stat is not None and catches(one.pid, one.number, thread) and call not in _CUT_SHORT:
            found.append((0 if stat.state == "R" else 1 if call in _GOES_ON else 2, thread))
    return min(found, default=(0, 0))[1]


def _answers(waiting: dict[Asked, int], within: float) -> Iterable[tuple[Asked, str]]:
    deadline = time.monotonic() + within
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

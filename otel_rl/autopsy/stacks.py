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
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.autopsy.evidence import AsyncTask, Frame, Thread
from otel_rl.autopsy.kernel import catches, files_of, stat_of, syscall_of, threads_of
from otel_rl.autopsy.questions import put
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.files.outputs import emptied
from otel_rl.recorder.files.own_files import open_regular, read_shown
from otel_rl.recorder.files.signals import STACKS, TASKS, THREADS
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SOON_S, _WITHIN_S = 1.0, 2.0
"""Seconds until a process has answered the question, and the signal."""
_TASKS_S = 10.0
"""Seconds in which tasks were written that belong to the last stacks."""
_SETTLED_S, _POLL_S = 0.1, 0.02
"""Seconds without a new byte until an answer counts as complete."""
_MOST_BYTES = 1 << 20
_MOST_SOURCE = 160
_MOST_THREADS = 256
_OWN = "otel_rl/recorder/trainer/questions.py"
_GOES_ON = ("futex", "read", "recvfrom", "recvmsg", "accept", "accept4", "wait4", "waitid", "flock", "fcntl", "openat")
_CUT_SHORT = ("write", "writev", "pwrite64", "sendto", "sendmsg", "sendfile")
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class Asked(NamedTuple):
    """A process that can be asked."""

    pid: int  # its id
    number: int  # the signal
    file: Path  # the file into which it writes, in the journal
    has_thread: bool = True  # if true, a thread of it reads questions; a forked child has none


def ask(processes: Iterable[Asked]) -> dict[int, tuple[Thread, ...] | str]:
    """Return the stacks of processes, the main thread first, or why there are none; all are asked at once."""
    every = list(processes)
    answers = _asked([process for process in every if process.has_thread], _question, _SOON_S)
    silent = [process for process in every if not isinstance(answers.get(process.pid), tuple)]
    return answers | _asked(silent, _signal, _WITHIN_S)


def _asked(
    processes: Iterable[Asked], way: Callable[[Asked], str], within: float
) -> dict[int, tuple[Thread, ...] | str]:
    """Ask processes in one way, which returns why it cannot; return the stacks, or why there are none."""
    answers: dict[int, tuple[Thread, ...] | str] = {}
    waiting: dict[Asked, int] = {}
    for process in processes:
        try:
            if why := _why_not(process):
                answers[process.pid] = why
                continue
            begin = emptied(process.file, _MOST_BYTES)
            if why := way(process):
                answers[process.pid] = why
            else:
                waiting[process] = begin
        except OSError as error:
            answers[process.pid] = str(error.strerror or error)
    for process, text in _answers(waiting, within):
        names = _names(process.file.with_name(THREADS)) if way is _question else {}
        answers[process.pid] = parsed(text, names, with_source=is_own(process.pid)) or "it did not answer"
    return answers


def is_own(pid: int) -> bool:
    """Return whether a process is this user's. The stacks of another one could name any file of this user."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116
    return False


def _question(process: Asked) -> str:
    return "" if put(process.pid, process.file.parent, STACKS) else "nothing reads its questions"


def _why_not(process: Asked) -> str:
    """Return why a process must not get the signal: it would end it, or write into another file; empty if it may."""
    if process.file.is_symlink() or str(process.file.resolve()) not in files_of(process.pid).values():
        return "it has closed the file for them, or it is another user's"
    if not catches(process.pid, process.number):
        return "it no longer handles the signal that asks for them"
    seen = stat_of(process.pid)
    return "it is stopped" if seen is not None and seen.state in "Tt" else ""


def _names(place: Path) -> dict[str, tuple[int, str]]:
    """Return the numbers and names of threads by their identities, as a process has written them."""
    with suppress(OSError, *UNDECODABLE):
        named = msgspec.json.decode(read_shown(place, place.parent), type=list[tuple[str, int | None, str]])
        return {f"{int(identity, 16):#x}": (number or 0, name) for identity, number, name in named}
    return {}


def tasks_of(process: Asked) -> tuple[AsyncTask, ...]:
    """Return the tasks of asyncio that a process has written with its last stacks."""
    place = process.file.with_name(TASKS)
    with suppress(OSError, *UNDECODABLE):
        if time.time() - place.stat().st_mtime > _TASKS_S:
            return ()  # the last stacks came by a signal
        written = msgspec.json.decode(read_shown(place, place.parent), type=tuple[_WrittenTask, ...])
        with_source = is_own(process.pid)
        return tuple(task.seen(with_source=with_source) for task in written)
    return ()


class _WrittenTask(msgspec.Struct):
    name: str
    frames: list[tuple[str, int, str]]
    awaits: tuple[int, ...]
    is_main: bool
    error: str

    def seen(self, *, with_source: bool) -> AsyncTask:
        frames = tuple(
            Frame(file, line, function, source_of(file, line) if with_source else "")
            for file, line, function in self.frames
        )
        return AsyncTask(self.name, frames, self.awaits, self.is_main, self.error)


def parsed(
    text: str, names: Mapping[str, tuple[int, str]] = MappingProxyType({}), *, with_source: bool = True
) -> tuple[Thread, ...]:
    """Return the threads of the text that `faulthandler` writes, the main thread first; of several texts the last.

    Args:
        text: The text.
        names: The numbers and names of threads by their identities.
        with_source: If true, the files that it names may be read.
    """
    by_id: dict[str, tuple[int, str, list[Frame]]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if (begins := _THREAD.match(line)) is not None:
            frames = []
            by_id.pop(begins[1], None)
            number, name = names.get(f"{int(begins[1], 16):#x}", (0, ""))
            by_id[begins[1]] = number, name or begins[2] or "", frames
        elif (frame := _FRAME.match(line)) is not None:
            file, line_number = _literal(frame[1]), int(frame[2])
            source = source_of(file, line_number) if with_source else ""
            frames.append(Frame(file, line_number, _literal(frame[3]), source))
    threads = [Thread(tuple(frames), name, number) for number, name, frames in by_id.values()]
    # The thread that answers the question sees itself.
    own = [thread for thread in threads if not any(frame.file.endswith(_OWN) for frame in thread.frames)]
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


def _signal(process: Asked) -> str:
    if not (thread := _best_thread(process)):
        return "a signal would cut short what it writes"
    try:
        # `os.kill` lets the kernel choose a thread, often the main one, whose write would return early.
        tgkill = ctypes.CDLL(None, use_errno=True).tgkill
    except AttributeError:  # another C library: the kernel chooses the thread
        os.kill(process.pid, process.number)
        return ""
    if tgkill(process.pid, thread, process.number) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ""


def _best_thread(process: Asked) -> int:
    """Return the thread that a signal disturbs least; 0 if it would cut short what each of them writes."""
    candidates: list[tuple[int, int]] = []
    for thread in threads_of(process.pid)[:_MOST_THREADS]:
        seen, call = stat_of(process.pid, thread), syscall_of(process.pid, thread)[0]
        if seen is not None and catches(process.pid, process.number, thread) and call not in _CUT_SHORT:
            candidates.append((0 if seen.state == "R" else 1 if call in _GOES_ON else 2, thread))
    return min(candidates, default=(0, 0))[1]


def _answers(waiting: dict[Asked, int], within: float) -> Iterable[tuple[Asked, str]]:
    deadline = time.monotonic() + within
    sizes, since = dict(waiting), dict.fromkeys(waiting, time.monotonic())
    while waiting:
        time.sleep(_POLL_S)
        now = time.monotonic()
        for process, begun in list(waiting.items()):
            size = process.file.lstat().st_size if process.file.exists() else 0
            if size != sizes[process]:
                sizes[process], since[process] = size, now
            elif (size > begun and now - since[process] > _SETTLED_S) or now > deadline:
                del waiting[process]
                yield process, _read(process.file, begun)


def _read(file: Path, begin: int) -> str:
    with suppress(OSError), open_regular(file, links=False) as opened:
        opened.seek(begin)
        return opened.read(_MOST_BYTES).decode("ascii", "replace")
    return ""

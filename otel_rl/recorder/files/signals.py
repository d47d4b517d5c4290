"""The end of a process by a signal that nobody handles, such as SIGTERM from a batch system, and its stacks on request.

No Python code runs at such an end, nor should it: a trainer that hangs in C code would never come to a handler in
Python, and so would not end. But `faulthandler` has a handler in C, which writes the stacks of all threads into a file,
and then lets the signal do what it did before. A file that is not empty names the signal that ended the process.

A real-time signal has the same handler, and does nothing else: an autopsy sends it to see the stacks of a process whose
GIL is held. The kernel goes on with most system calls afterwards, and Python repeats the others (PEP 475).

A signal that anything handles or ignores is left alone. Programs that a trainer starts do not inherit the handlers.
Forked children have the second one, so that an autopsy sees them too.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.recorder.files import descriptors
from otel_rl.recorder.files.atomic_files import number_in
from otel_rl.recorder.files.modes import open_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_register, _unregister = faulthandler.register, faulthandler.unregister  # not those that take their place below
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
"""Batch systems, Kubernetes, closed terminals and limits of CPU time send them; by default they end the process."""
_FIRST, _LAST = getattr(signal, "SIGRTMIN", 0) + 8, getattr(signal, "SIGRTMAX", 0)
"""The real-time signals that may ask for stacks; profilers and timers take the first ones."""
_STACKS = "stacks"
QUESTIONS, STACKS, FLIGHT = "questions", b"s", b"f"
"""The file that names the pipe of a process, and what an autopsy asks for: stacks, or PyTorch's Flight Recorder."""
FLIGHT_ANSWER = "flight.json"
"""The file with the answer of PyTorch's Flight Recorder."""
THREADS = "threads.json"
"""The file with the threads whose stacks were asked for: identity in stacks, number of the kernel, and name."""
TASKS = "tasks.json"
"""The file with the tasks of asyncio, written with the threads."""


class _StackFile(NamedTuple):
    """The file into which a signal writes the stacks."""

    place: Path
    descriptor: descriptors.KeptDescriptor


class SignalFiles:
    """The signals that would end this process, and the one that asks for its stacks, each with a file, until `close`.

    The files are in the directory of the journal.
    """

    def __init__(self) -> None:
        self._files: dict[int, _StackFile] = {}
        self._pid = 0

    def begin(self, directory: Path) -> None:
        """Watch the signals from now on."""
        self._pid = os.getpid()
        for name in _ENDS:
            self._register(name, directory / name.name, ends=True)
        any(self._register(number, directory / f"{_STACKS}.{number}", ends=False) for number in range(_FIRST, _LAST))
        if not _open:
            _replace_setters()
        _open.append(self)

    def _register(self, number: int, place: Path, *, ends: bool) -> bool:
        """Let a signal write the stacks into a file, unless something handles it; return whether it does."""
        with suppress(OSError, ValueError, RuntimeError):  # no descriptors or no room is left
            # `getsignal` does not know handlers that C code installed, as MPI does; they would be replaced
            # (faults/test_signals.py).
            if signal.getsignal(number) is signal.SIG_DFL and not _is_caught(number):
                # Kept open: `faulthandler` knows only the number of the descriptor, and would write stacks into the
                # file that has it next.
                opened = descriptors.raised(open_file(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
                self._files[number] = _StackFile(place, descriptors.kept(opened))
                _register(number, opened, all_threads=True, chain=ends)
                return True
        return False

    def keep(self) -> bool:
        """Open the files again that the trainer has closed; return whether it had closed one.

        `faulthandler` does not compare the number, and would write stacks into a file of the trainer that has it.
        """
        closed = [(number, file.place) for number, file in list(self._files.items()) if not file.descriptor.is_same]
        for number, place in closed:
            self._leave(number, removes=False)
            self._register(number, place, ends=number in _ENDS)
        return bool(closed)

    def leave_files(self, numbers: range) -> None:
        """Leave the signals whose files are about to be closed, until `keep` opens them again."""
        for number, file in list(self._files.items()):
            is_own = file.descriptor.number in numbers and file.descriptor.is_same
            if is_own and signal.getsignal(number) is signal.SIG_DFL:
                _unregister(number)

    def leave_before(self, number: int) -> None:
        """Leave the signal that asks for stacks as it was, since somebody sets its handler."""
        if number not in _ENDS:
            self._leave(number, removes=os.getpid() == self._pid)

    def write_stacks(self) -> None:
        """Write the stacks of all threads as the signal that asks for them does."""
        for number, file in list(self._files.items()):
            if number not in _ENDS and file.descriptor.is_same:
                faulthandler.dump_traceback(file.descriptor.number, all_threads=True)

    def close(self, *, in_child: bool = False) -> None:
        """Leave the signals alone, except where the trainer has set a handler since; a second call is harmless."""
        if self in _open and not in_child:
            with suppress(ValueError):  # another thread closes it too
                _open.remove(self)
            if not _open:
                _restore_setters()
        for number in list(self._files):
            if in_child and number not in _ENDS:
                continue  # its parent may wait for it
            self._leave(number, removes=not in_child)  # a child that a signal ended early may have written into it

    def _leave(self, number: int, *, removes: bool = True) -> None:
        """Leave a signal as it was before `begin`, unless somebody has set a handler."""
        file = self._files.pop(number, None)
        if file is None:
            return
        if signal.getsignal(number) is signal.SIG_DFL:
            _unregister(number)
        file.descriptor.close()
        if removes:
            with suppress(OSError):
                file.place.unlink()


_open: list[SignalFiles] = []
"""Those of this process. They share one set of replaced functions: each of runs that overlap would wrap the last."""
_replaced: list[tuple[ModuleType, str, object, object]] = []


def _replace_setters() -> None:
    """Let the functions that set the handler of a signal find it as it was before `SignalFiles.begin`.

    The kernel does not say whose handler a signal has. So whoever sets one for the signal that asks for stacks closes
    its file first, by which an autopsy knows that it must not send it.
    """
    for module, name, replacing in _SETTERS:
        original = getattr(module, name)
        call = replacing(original)
        setattr(module, name, call)
        _replaced.append((module, name, call, original))


def _leaving(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves a signal, and then sets its handler as the original does."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        number = args[0] if args else kwargs.get("signum", kwargs.get("signalnum"))
        if isinstance(number, int):
            for files in list(_open):
                files.leave_before(int(number))
        return original(*args, **kwargs)

    return call


def _leaving_files(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves the signals whose files it closes.

    `faulthandler` would write into a file of the trainer that has the number next.
    """

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("fd")
        end = args[1] if len(args) > 1 else first + 1 if isinstance(first, int) else None
        if isinstance(first, int) and isinstance(end, int) and end > descriptors.FIRST:
            for files in list(_open):
                files.leave_files(range(first, end))
        return original(*args, **kwargs)

    return call


_SETTERS = (
    (signal, "signal", _leaving),
    (faulthandler, "register", _leaving),
    (faulthandler, "unregister", _leaving),
    (os, "close", _leaving_files),
    (os, "closerange", _leaving_files),
)
"""Functions that are replaced while there are files for signals."""


def _restore_setters() -> None:
    """Put the functions back, except where somebody has replaced them since."""
    while _replaced:
        module, name, call, original = _replaced.pop()
        if getattr(module, name) is call:
            setattr(module, name, original)


def _is_caught(number: int) -> bool:
    """Return whether C code handles a signal, on Linux."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def stacks_of(directory: Path) -> tuple[int, Path] | None:
    """Return the signal that asks a process for its stacks, and the file into which it writes them."""
    for place in directory.glob(f"{_STACKS}.*"):
        if number := number_in(place.suffix[1:]):
            return number, place
    return None


def ended_by(directory: Path) -> tuple[int, int] | None:
    """Return which of these signals ended a process that has died, and the Unix time in nanoseconds."""
    for number in _ENDS:
        with suppress(OSError):
            file = os.stat(directory / number.name)  # noqa: PTH116
            if file.st_size:
                return number, file.st_mtime_ns
    return None

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
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.journal.atomic_files import number_in
from otel_rl.journal.ending import BY_SIGNAL, ending_by_status
from otel_rl.journal.modes import open_file
from otel_rl.journal.records import Finished

if TYPE_CHECKING:
    from io import FileIO

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
"""Batch systems, Kubernetes, closed terminals and limits of CPU time send them; by default they end the process."""
_FIRST, _LAST = getattr(signal, "SIGRTMIN", 0) + 8, getattr(signal, "SIGRTMAX", 0)
"""The real-time signals that may ask for stacks; profilers and timers take the first ones."""
_STACKS = "stacks"
QUESTIONS, STACKS, FLIGHT = "questions", b"s", b"f"
"""The file that names the pipe of a process, and what an autopsy asks for: stacks, or PyTorch's Flight Recorder."""
FLIGHT_ANSWER = "flight.json"
"""The file with the answer of PyTorch's Flight Recorder."""


class Watched:
    """The signals that would end this process, and the one that asks for its stacks, each with a file, until `close`.

    The files are in the journal.
    """

    def __init__(self) -> None:
        self._files: dict[int, FileIO] = {}

    def begin(self, journal: Path) -> None:
        """Watch them from now on."""
        for name in _ENDS:
            self._register(name, journal / name.name, ends=True)
        any(self._register(one, journal / f"{_STACKS}.{one}", ends=False) for one in range(_FIRST, _LAST))

    def _register(self, number: int, place: Path, *, ends: bool) -> bool:
        """Let a signal write the stacks into a file, unless something handles it; return whether it does."""
        with suppress(OSError, ValueError, RuntimeError):  # no descriptors or no room is left
            if signal.getsignal(number) is signal.SIG_DFL and not _is_caught(number):
                self._files[number] = open(place, "ab", 0, opener=open_file)  # noqa: SIM115
                faulthandler.register(number, self._files[number], all_threads=True, chain=ends)
                return True
        return False

    def write_stacks(self) -> None:
        """Write the stacks of all threads as the signal that asks for them does."""
        for number, file in list(self._files.items()):
            if number not in _ENDS:
                faulthandler.dump_traceback(file, all_threads=True)

    def close(self, *, in_child: bool = False) -> None:
        """Leave the signals alone, except where the trainer has set a handler since; a second call is harmless."""
        for number, file in list(self._files.items()):
            if in_child and number not in _ENDS:
                continue  # its parent may wait for it
            if not file.closed and signal.getsignal(number) is signal.SIG_DFL:
                faulthandler.unregister(number)
            with suppress(OSError):  # somebody has closed its descriptor
                file.close()
            if not in_child:  # a child that a signal ended early may have written into it
                with suppress(OSError):
                    Path(file.name).unlink()
            self._files.pop(number, None)


def _is_caught(number: int) -> bool:
    """Return whether C code handles a signal, on Linux."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def stacks_of(journal: Path) -> tuple[int, Path] | None:
    """Return the signal that asks a process for its stacks, and the file into which it writes them."""
    for place in journal.glob(f"{_STACKS}.*"):
        if number := number_in(place.suffix[1:]):
            return number, place
    return None


def read(journal: Path) -> Finished | None:
    """Return how a process that has died ended, if it was by one of these signals."""
    for number in _ENDS:
        with suppress(OSError):
            found = os.stat(journal / number.name)  # noqa: PTH116
            if found.st_size:
                return Finished(found.st_mtime_ns, *ending_by_status(BY_SIGNAL + number))
    return None

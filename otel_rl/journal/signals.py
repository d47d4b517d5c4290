"""The end of a process by a signal that nobody handles, such as SIGTERM from a batch system.

No Python code runs at such an end, nor should it: a trainer that hangs in C code would never come to a handler in
Python, and so would not end. But `faulthandler` has a handler in C, which writes the stacks of all threads into a file,
and then lets the signal do what it did before. A file that is not empty names the signal that ended the process.

A signal that anything handles or ignores is left alone. Programs that a trainer starts do not inherit the handler.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.journal.ending import BY_SIGNAL, ending_by_status
from otel_rl.journal.modes import open_file
from otel_rl.journal.records import Finished

if TYPE_CHECKING:
    from io import FileIO

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
"""Batch systems, Kubernetes, closed terminals and limits of CPU time send them; by default they end the process."""


class Watched:
    """The signals that would end this process, each with a file in its journal, until `close`."""

    def __init__(self) -> None:
        self._files: dict[signal.Signals, FileIO] = {}

    def begin(self, journal: Path) -> None:
        """Watch them from now on."""
        for number in _ENDS:
            with suppress(OSError, ValueError, RuntimeError):  # no descriptors or no room is left
                if signal.getsignal(number) is signal.SIG_DFL and not _is_caught(number):
                    self._files[number] = open(journal / number.name, "wb", 0, opener=open_file)  # noqa: SIM115
                    faulthandler.register(number, self._files[number], all_threads=True, chain=True)

    def close(self, *, in_child: bool = False) -> None:
        """Leave the signals alone, except where the trainer has set a handler since; a second call is harmless."""
        for number, file in self._files.items():
            if not file.closed and signal.getsignal(number) is signal.SIG_DFL:
                faulthandler.unregister(number)
            with suppress(OSError):  # somebody has closed its descriptor
                file.close()
            if not in_child:  # a child that a signal ended early may have written into it
                with suppress(OSError):
                    Path(file.name).unlink()
        self._files.clear()


def _is_caught(number: int) -> bool:
    """Return whether C code handles a signal, on Linux."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def read(journal: Path) -> Finished | None:
    """Return how a process that has died ended, if it was by one of these signals."""
    for number in _ENDS:
        with suppress(OSError):
            found = os.stat(journal / number.name)  # noqa: PTH116
            if found.st_size:
                return Finished(found.st_mtime_ns, *ending_by_status(BY_SIGNAL + number))
    return None

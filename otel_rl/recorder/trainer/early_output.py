"""Lines that a trainer prints before its run begins: the beginning of those of the run.

They are kept from the start of the interpreter on, in a trainer that `otel-rl run` has started.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING

from otel_rl.recorder.files.processes import output_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.recorder.journal.records import Printed

_MOST = 2_000
"""Lines that are kept; of more, the last ones."""
_early: list[EarlyOutput] = []
"""The output of this process until its run begins; empty afterwards."""


class EarlyOutput:
    """Keeps the lines of a process without a run, and how long the files of its output were at its start."""

    def __init__(self) -> None:
        self.pid, self.clock = os.getpid(), self
        self.sizes = {(number, file): size for number, file, size, _ in output_files()}
        self.records: deque[Printed] = deque(maxlen=_MOST)
        self.close: Callable[[], None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no run of this process has begun."""
        return self in _early and self.pid == os.getpid()

    def now(self) -> int:
        """Return the time in Unix nanoseconds."""
        return time.time_ns()

    def write(self, record: Printed) -> None:
        """Keep a line."""
        self.records.append(record)


def begin() -> EarlyOutput:
    """Return what keeps the lines of this process until its run begins, and then calls its `close`."""
    _early.append(EarlyOutput())
    return _early[-1]


def places() -> list[tuple[int, str, int, bytes]]:
    """Return the files of standard output and error, as `output_files` does, with their sizes at the start."""
    sizes = _early[0].sizes if _early and _early[0].is_waiting else {}
    return [
        (number, file, min(size, sizes.get((number, file), size)), path) for number, file, size, path in output_files()
    ]


def taken() -> Sequence[Printed]:
    """Return the lines before the run, which begins, and keep no more; a forked child has none."""
    if not _early:
        return ()
    early = _early.pop()
    if early.close is not None:
        early.close()
    return early.records if early.pid == os.getpid() else ()

"""Questions to processes that record, through the pipe that each of them reads."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from otel_rl.autopsy.kernel import files_of
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.files.own_files import read_shown
from otel_rl.recorder.files.signals import QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path


def put(pid: int, journal: Path, question: bytes) -> bool:
    """Write a question into the pipe of a process; return whether it has one.

    The journal names its descriptor and its inode: a trainer may have closed it, and use the number for something else.
    The journal may be another user's; only the process that writes it is asked.
    """
    with suppress(OSError, ValueError, *UNDECODABLE):
        if not any(os.path.dirname(file) == str(journal.resolve()) for file in files_of(pid).values()):  # noqa: PTH120
            return False
        number, inode = map(int, read_shown(journal / QUESTIONS, journal).split())
        # O_NONBLOCK: a process that is stopped does not read, and a full pipe would hold up the autopsy.
        pipe = os.open(f"/proc/{pid}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.fstat(pipe).st_ino == inode and os.write(pipe, question) == 1
        finally:
            os.close(pipe)
    return False

"""The exit status of a process, written by the C library after the interpreter has ended.

Python does not expose the exit status: `sys.exit` calls no hook, and at `atexit` the `SystemExit` is gone. A wrapper of
`sys.exit` would miss `raise SystemExit`, and count exits that are caught. Only the parent of a process can wait for it.
But glibc calls the functions that are registered with `on_exit`, with the status and one pointer, after the interpreter
has ended. `fputc` has just these arguments: a number, which it writes as one byte, and a file. So no Python code and no
code of otel-rl runs at that time.

The byte is missing if the C library has no `on_exit` (musl, macOS), if the process ends by `os._exit` or a signal, or
if a later exit handler crashes. Then the outcome known at `atexit` counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.errors import UNDECODABLE
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.ending import ending_by_status
from otel_rl.journal.records import Finished

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "end"
_STATUS_BYTES = 1


def leave(journal: Path, end: Finished) -> bool:
    """Write the outcome known at `atexit` into the journal's directory, and let the C library append the exit status.

    Returns:
        Whether it succeeded. If so, the process must hold the lock of its journal until it has exited.
    """
    path = journal / _NAME
    try:
        import ctypes  # only imported at exit

        libc = ctypes.CDLL(None)
        on_exit, fputc, fopen, setbuf = libc.on_exit, libc.fputc, libc.fopen, libc.setbuf
        raw = msgspec.msgpack.encode(end)
        write_atomically(path, len(raw).to_bytes(4, "big") + raw)
        fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(fopen(bytes(path), b"ae"))  # closed on exec
        if not file:
            path.unlink()
            return False
        setbuf(file, None)  # unbuffered, so that a later crash does not lose the byte
        if on_exit(ctypes.cast(fputc, ctypes.c_void_p), file) == 0:
            return True
        path.unlink()
    except (ImportError, OSError, AttributeError, TypeError):
        pass  # the disk is full, or the C library has no `on_exit` or cannot be loaded
    return False


def read(journal: Path) -> Finished | None:
    """Return how an exited process ended; `None` if it did not call `leave`."""
    try:
        content = (journal / _NAME).read_bytes()
        size = 4 + int.from_bytes(content[:4], "big")
        end = msgspec.msgpack.decode(content[4:size], type=Finished)
    except (OSError, *UNDECODABLE):
        return None
    status = content[size : size + _STATUS_BYTES]
    if not status or status[0] == end.exit_code:
        return end
    return Finished(end.time, *ending_by_status(status[0]))

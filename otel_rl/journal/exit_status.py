"""The exit status of a process, written by its C library after everything else.

Python does not show it: `sys.exit` reaches no hook, and at `atexit` the `SystemExit` is gone. Wrapping `sys.exit` would
miss `raise SystemExit`, and count what somebody catches. Only the parent of a process may wait for it. But glibc calls
what is registered with `on_exit` with the status, once the interpreter is gone; and its `fputc` takes just that: a
number, which it writes as one byte, and a file. So neither Python code nor code of otel-rl's own runs then.

Where the C library has no `on_exit` (musl, macOS), where a process ends by `os._exit` or a signal, or where code that
ends later crashes, the byte is missing; what was known at `atexit` counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.ending import ending_by_status
from otel_rl.journal.records import Finished

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "end"
_STATUS_BYTES = 1


def leave(journal: Path, end: Finished) -> bool:
    """Write how this process ends, as far as it knows at `atexit`, beside its journal; the exit status will follow.

    Returns:
        Whether that could be done. The process must hold the lock of its journal until it is gone.
    """
    path = journal / _NAME
    try:
        import ctypes  # at the exit alone

        libc = ctypes.CDLL(None)
        on_exit, fputc, fopen, setbuf = libc.on_exit, libc.fputc, libc.fopen, libc.setbuf
        raw = msgspec.msgpack.encode(end)
        write_atomically(path, len(raw).to_bytes(4, "big") + raw)
        fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(fopen(bytes(path), b"ae"))  # closed on exec
        if not file:
            path.unlink()
            return False
        setbuf(file, None)  # a later crash must not take the byte along
        if on_exit(ctypes.cast(fputc, ctypes.c_void_p), file) == 0:
            return True
        path.unlink()
    except (ImportError, OSError, AttributeError, TypeError):
        pass  # a full disk; a C library without `on_exit`, or that cannot be opened
    return False


def read(journal: Path) -> Finished | None:
    """Return how a process that is gone has ended, if it said so with `leave`."""
    try:
        content = (journal / _NAME).read_bytes()
        size = 4 + int.from_bytes(content[:4], "big")
        end = msgspec.msgpack.decode(content[4:size], type=Finished)
    except (OSError, msgspec.MsgspecError):
        return None
    status = content[size : size + _STATUS_BYTES]
    if not status or status[0] == end.exit_code:
        return end
    return Finished(end.time, *ending_by_status(status[0]))

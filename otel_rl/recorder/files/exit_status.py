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

from otel_rl.recorder.files.atomic_files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "end"
_SIZE_BYTES = 4


def leave(directory: Path, outcome: bytes) -> bool:
    """Write the outcome known at `atexit` into a directory, and let the C library append the exit status.

    Returns:
        Whether it succeeded. If so, the process must hold the lock of the directory until it has exited.
    """
    path = directory / _NAME
    try:
        import ctypes  # only imported at exit

        libc = ctypes.CDLL(None)
        on_exit, fputc, fopen, setbuf = libc.on_exit, libc.fputc, libc.fopen, libc.setbuf
        # Complete before `on_exit` is called: whenever the process ends after that, the status is the one byte behind a
        # whole record.
        write_atomically(path, len(outcome).to_bytes(_SIZE_BYTES, "big") + outcome)
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


def read(directory: Path) -> tuple[bytes, int | None] | None:
    """Return what `leave` wrote, and the exit status if it was appended; `None` if the process did not call `leave`."""
    try:
        content = (directory / _NAME).read_bytes()
    except OSError:
        return None
    end = _SIZE_BYTES + int.from_bytes(content[:_SIZE_BYTES], "big")
    return content[_SIZE_BYTES:end], content[end] if len(content) > end else None

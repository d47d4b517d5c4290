"""Locks that the kernel releases when their process ends.

All of them are `flock` locks of the directory that they protect.

* The kernel releases the lock whichever way the process ends. So a killed process differs from a slow one.
* It belongs to one open file. Opening and closing the directory again, as `shutil.copytree` or `tar` do, does not
  drop it; a POSIX lock (`fcntl.lockf`) is dropped by the first such close.
* There is no lock file that a cleaner of temporary files could delete, and systemd-tmpfiles leaves a directory alone
  while it is locked.
* A forked child shares the open file and would keep a dead parent looking alive, so it closes its copy at once. A new
  program gets no copy, since the descriptor is closed on exec. One case remains: a child that C code forks, that never
  executes another program, and that outlives its parent keeps the lock.
* Containers on one kernel see each other's locks. Pids, which are not unique across containers, are not used.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import threading
import time
from os.path import samestat
from typing import TYPE_CHECKING
from weakref import WeakSet

from otel_rl.recorder.files.descriptors import raised

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

_PATIENCE_S = 1.0
"""Seconds to wait by default: a probe holds a lock for microseconds, systemd-tmpfiles while it walks the directory."""
LONG_S = 120.0
"""Seconds to wait for a process that claims a journal or starts an agent: longer than an agent takes to get ready."""
_POLL_S = 0.01
_NONE = -1
_held: WeakSet[Lock] = WeakSet()
_kept: set[Lock] = set()


class Lock:
    """An exclusive lock of a directory, held until `release`, the end of a `with` block or the end of the process.

    It is also released when it is garbage-collected, unless `keep` was called. So a holder that an interrupt prevents
    from calling `release` does not hold it forever.

    Args:
        path: The directory; it must exist.
        patience: Seconds to wait for another holder.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: The directory cannot be opened.
    """

    _fd = _NONE

    def __init__(self, path: Path, *, patience: float = _PATIENCE_S) -> None:
        self.path = path
        self._file: os.stat_result | None = None
        self._thread = threading.get_ident()
        self._releaser: list[int] = []
        try:
            self._fd = _open(path)
            self._file = os.fstat(self._fd)
            # Before it waits: after an interrupt in `_lock`, `release_since` must find a lock that a traceback keeps
            # alive (faults/test_interrupts.py).
            _held.add(self)
            _lock(self._fd, path, patience)
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()

    # A default argument, because names of modules may be gone already when the interpreter ends and collects the last
    # locks.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # else the kernel releases it when the process ends
            self._close()

    @property
    def is_in_place(self) -> bool:
        """Whether the lock is still held, and `path` is still the directory that it protects."""
        return self.is_open and self._is_at(self.path)

    @property
    def is_open(self) -> bool:
        """Whether this process has the descriptor still: other code may have closed it."""
        return self._is_at(self._fd)

    def moved(self, path: Path) -> None:
        """Use the new path of the directory, which was renamed."""
        self.path = path

    def keep(self) -> None:
        """Hold the lock until the process ends, even if it is garbage-collected."""
        _kept.add(self)

    def release(self) -> None:
        """Release the lock; if a first call was interrupted, a second call in the same thread completes it.

        A descriptor that was closed and reused by other code stays open.
        """
        self._releaser.append(threading.get_ident())  # of two threads at once, the first one closes the descriptor
        if self._releaser[0] == threading.get_ident():
            self._close()

    def _close(self) -> None:
        if self._fd != _NONE and self.is_open:
            os.close(self._fd)
        self._fd = _NONE
        _held.discard(self)
        _kept.discard(self)

    def _is_at(self, place: int | Path) -> bool:
        """Return whether a descriptor or a path is that of the locked directory."""
        with contextlib.suppress(OSError):
            return self._file is not None and samestat(os.stat(place), self._file)  # noqa: PTH116 - or a descriptor
        return False


def held() -> frozenset[Lock]:
    """Return the locks that this process holds."""
    return frozenset(_held)


def release_since(before: Collection[Lock]) -> None:
    """Release the locks that this thread has taken since `before`, because an interrupt may have prevented it."""
    for lock in held():
        if lock not in before and lock._thread == threading.get_ident():
            lock.release()


def is_held(path: Path) -> bool:
    """Return whether a running process holds the lock of a directory."""
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared: of two agents that ask at the same time, none may take the other for the holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _open(path: Path) -> int:
    return raised(os.open(path, os.O_RDONLY | os.O_DIRECTORY))


def _lock(fd: int, path: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            # Polled: without LOCK_NB the kernel waits beyond any deadline, and Python repeats the call after each
            # signal (PEP 475).
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                why = f"another process has held its lock for {patience:g} s" if patience else "it is locked"
                raise BlockingIOError(errno.EAGAIN, why, str(path)) from None
            time.sleep(_POLL_S)


def _leave_to_the_parent() -> None:
    for lock in held():
        lock._close()  # closes the child's copy; the parent still holds the lock


# A lock belongs to the open file, which a child shares: it would outlive its parent, and keep it looking alive.
os.register_at_fork(after_in_child=_leave_to_the_parent)

"""Locks that last as long as the process that holds them.

There is one family: `flock` of the directory that is protected.

* The kernel releases it when the process ends, however it ends. So a process that was killed differs from a slow one.
* It belongs to one open file. Opening and closing the directory again, as `shutil.copytree` or `tar` do, does not
  drop it; a POSIX lock (`fcntl.lockf`) is dropped by the first such close.
* There is no lock file that a cleaner of temporary files could delete, and systemd-tmpfiles leaves a directory alone
  while it is locked.
* A forked child shares the open file and would keep a dead parent looking alive, so it closes its copy at once. A new
  program gets no copy, since the descriptor is closed on exec. Only a child that C code forks, which never executes
  another program and outlives its parent, delays the news of its parent's death.
* Containers on one kernel see each other's locks; pids play no part.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_S = 1.0
"""A probe holds the lock for microseconds, a cleaner for as long as it looks through the directory."""
_POLL_S = 0.01
_held: set[Lock] = set()


class _File(NamedTuple):
    device: int
    inode: int


class Lock:
    """An exclusive lock of a directory, held until `release` or the end of the process.

    Args:
        path: The directory; it must exist.
        patience: Seconds to wait for another holder; without a limit if infinite.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: The directory cannot be opened.
    """

    def __init__(self, path: Path, *, patience: float = _PATIENCE_S) -> None:
        self.path = path
        self._fd = _open(path)
        try:
            _lock(self._fd, patience)
            self._file = _file(os.fstat(self._fd))
        except BaseException:
            os.close(self._fd)
            raise
        _held.add(self)

    @property
    def is_in_place(self) -> bool:
        """Whether the lock is still held, and what is at `path` is still what it protects."""
        try:
            return self._is_ours() and _file(self.path.stat()) == self._file
        except OSError:
            return False

    def moved_to(self) -> Path | None:
        """Return where the directory is now; `None` if it was removed, or if this system does not tell."""
        with contextlib.suppress(OSError):
            place = Path(f"/proc/self/fd/{self._fd}").readlink()
            if self._is_ours() and _file(place.stat()) == self._file:
                return place
        return None

    def moved(self, path: Path) -> None:
        """Take note that the directory was renamed."""
        self.path = path

    def release(self) -> None:
        """Release the lock; a second call does nothing, and a descriptor that is no longer ours is left alone."""
        try:
            _held.remove(self)
        except KeyError:
            return
        if self._is_ours():
            os.close(self._fd)

    def _is_ours(self) -> bool:
        with contextlib.suppress(OSError):
            return _file(os.fstat(self._fd)) == self._file
        return False


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a directory, waiting for it."""
    lock = Lock(path, patience=math.inf)
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Tell whether a process that lives holds the lock of a directory."""
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _lock(fd: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if patience == math.inf else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


def _file(found: os.stat_result) -> _File:
    return _File(found.st_dev, found.st_ino)


def _leave_to_the_parent() -> None:
    for lock in list(_held):
        lock.release()  # closes the child's copy; the lock itself stays with the parent


os.register_at_fork(after_in_child=_leave_to_the_parent)

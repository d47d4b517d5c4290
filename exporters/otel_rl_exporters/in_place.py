"""Files that have to stay where they are: what is written to a file that was removed or replaced is seen by nobody."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from otel_rl.export import Gone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Appended:
    """A file that is appended to, for as long as it is the one at its path and nobody cuts it.

    Args:
        path: The file; its directory is made if need be.
        flags: How it is opened, beside for appending.
    """

    def __init__(self, path: Path, flags: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file = os.open(path, flags | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = 0

    def check(self) -> int:
        """Return the file's size.

        Raises:
            Gone: It was removed, replaced or cut, and is not closed.
        """
        if self.file < 0:
            return self._size
        found = os.fstat(self.file)
        if _of_path(self.path) != (found.st_dev, found.st_ino):
            raise Gone(f"{self.path} was removed or replaced")
        if found.st_size < self._size:
            raise Gone(f"{self.path} was cut from {self._size} to {found.st_size} bytes")
        return found.st_size

    def wrote(self) -> None:
        """Take note of the file's size, below which it must not fall."""
        self._size = os.fstat(self.file).st_size

    def close(self) -> None:
        """Close the file; a second call is harmless."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)


def append(written: Sequence[tuple[Appended, bytes | memoryview]]) -> None:
    """Append to each file what belongs to it: all of it, or nothing and an error.

    Raises:
        Gone: One of the files was removed, replaced or cut.
        OSError: It cannot be written now.
    """
    before = [(file, file.check()) for file, _ in written]
    try:
        for file, data in written:
            if data and os.write(file.file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        for file, size in before:
            os.ftruncate(file.file, size)  # the same items come again
        raise
    for file, _ in written:
        file.wrote()


class Watched:
    """A file that another package writes, or will write.

    Args:
        path: The file; `None` is none, which never goes.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = None if path is None else _of_path(path)

    def __bool__(self) -> bool:
        """Tell whether there is a file to be watched."""
        return self._path is not None

    def check(self) -> None:
        """See whether the file is still the one that it was.

        Raises:
            Gone: It was removed or replaced.
        """
        if self._path is None:
            return
        found = _of_path(self._path)
        if self._known is None:
            self._known = found
        elif found != self._known:
            raise Gone(f"{self._path} was removed or replaced")


def _of_path(path: Path) -> tuple[int, int] | None:
    """Return device and inode of what is at a path; `None` if nothing is."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino

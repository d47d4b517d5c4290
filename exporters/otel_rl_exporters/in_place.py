"""Files that must stay at their paths: nobody reads what is written to a file that was removed or replaced."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from otel_rl.export import Gone
from otel_rl.recorder.files.modes import make_directory, open_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Appended:
    """A file that is appended to while it is still the file at its path and was not truncated.

    It is opened with the `flags` of `os.open` in addition to those for appending. A missing directory is created.
    """

    def __init__(self, path: Path, flags: int) -> None:
        make_directory(path.parent)
        self.path = path
        self.file = open_file(path, flags | os.O_CREAT | os.O_APPEND)
        self._size = 0

    def check(self) -> int:
        """Return the file's size.

        Raises:
            Gone: It was removed, replaced or truncated, and is not closed.
        """
        if self.file < 0:
            return self._size
        status = os.fstat(self.file)
        if _of_path(self.path) != (status.st_dev, status.st_ino):
            raise Gone(f"{self.path} was removed or replaced")
        if status.st_size < self._size:
            raise Gone(f"{self.path} was truncated from {self._size} to {status.st_size} bytes")
        return status.st_size

    def wrote(self) -> None:
        """Remember the file's size. A smaller size later means that it was truncated."""
        self._size = os.fstat(self.file).st_size

    def close(self) -> None:
        """Close the file; a second call is harmless."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)


def append(written: Sequence[tuple[Appended, bytes | memoryview]]) -> None:
    """Append data to each file. If one write fails, undo all of them and raise.

    Raises:
        Gone: One of the files was removed, replaced or truncated.
        OSError: A file cannot be written now.
    """
    # All files are checked before the first one is written: `Gone` must leave nothing to undo.
    before = [(file, file.check()) for file, _ in written]
    try:
        for file, data in written:
            # The last write before a full disk is short and raises nothing (tests/exporters/test_no_room.py).
            if data and os.write(file.file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        for file, size in before:
            os.ftruncate(file.file, size)  # the same items are retried
        raise
    for file, _ in written:
        file.wrote()


class WatchedFile:
    """A file that another package writes or will write; `None` watches nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = None if path is None else _of_path(path)

    def __bool__(self) -> bool:
        """Return whether there is a file to watch."""
        return self._path is not None

    def check(self) -> None:
        """Check that the file at the path is still the same one.

        Raises:
            Gone: It was removed or replaced.
        """
        if self._path is None:
            return
        identity = _of_path(self._path)
        # The other package makes its file with the first write, which may come after this exporter was built.
        if self._known is None:
            self._known = identity
        elif identity != self._known:
            raise Gone(f"{self._path} was removed or replaced")


def _of_path(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, or `None` if there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino

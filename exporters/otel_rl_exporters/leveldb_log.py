"""The log files of W&B and SwanLab: records in the blocks of a LevelDB log."""

from __future__ import annotations

import os
import struct
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 32768
_FILE_HEADER = 7
_HEADER = struct.Struct("<IHB")  # checksum, length, kind
_FULL, _FIRST, _LAST = 1, 2, 4


class LogReader:
    """A reader of a log from its beginning. The file may still be written, or not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._position = _FILE_HEADER

    def read(self) -> list[bytes]:
        """Return the records that became complete since the last call."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
        begin = self._position
        data = os.pread(self._fd, max(0, os.fstat(self._fd).st_size - begin), begin)
        records, parts, at = [], b"", 0
        while at + _HEADER.size <= len(data):
            left = _BLOCK - (begin + at) % _BLOCK
            _, length, kind = _HEADER.unpack_from(data, at)
            if left < _HEADER.size or not kind:  # too little is left of the block for another record
                at += left
                continue
            end = at + _HEADER.size + length
            if end > len(data):
                break
            parts = (b"" if kind in (_FULL, _FIRST) else parts) + data[at + _HEADER.size : end]
            at = end
            if kind in (_FULL, _LAST):
                records.append(parts)
                # Only whole records are passed: one whose last part is not written yet is read again later.
                self._position = begin + at
        return records

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PendingItems:
    """The items whose records a log does not have yet. Records are of two kinds, and each kind is written in order."""

    def __init__(self) -> None:
        self._given: deque[tuple[int, int]] = deque()  # the number of records of each kind up to each item
        self._all = (0, 0)
        self._written = 0

    def add(self, first: int = 0, second: int = 0) -> None:
        """Add an item with these numbers of records."""
        self._all = (self._all[0] + first, self._all[1] + second)
        self._given.append(self._all)

    def count(self, first: int, second: int) -> int:
        """Return the number of written items, given the numbers of written records."""
        while self._given and self._given[0][0] <= first and self._given[0][1] <= second:
            self._given.popleft()
            self._written += 1
        return self._written

    def __bool__(self) -> bool:
        """Return whether items are not written yet."""
        return bool(self._given)

"""The journals of processes of other machines, as the head keeps them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import msgspec

from otel_rl.journal import Reader, frame_of, released, segment_numbers, segment_path

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.records import Record

logger = logging.getLogger(__name__)
_PATIENCE_S = 60.0


class Appender:
    """Appends to a journal by `write`: it reserves and maps nothing, and has a descriptor only between two rests.

    A trainer cannot wait for the disk; the head can, and has thousands of journals.

    Args:
        directory: The journal; it must exist.
        limit_bytes: Bytes that are kept of it.
        segment_bytes: Bytes of a segment.
    """

    def __init__(self, directory: Path, limit_bytes: int, segment_bytes: int = 4 << 20) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._segment_bytes = segment_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._number = max(segment_numbers(directory), default=0) + 1  # the last one may end in half a frame
        self._fd = -1
        self._size = 0

    def append(self, record: msgspec.Struct) -> None:
        """Write a record; it survives the process once this returns.

        Raises:
            OSError: It cannot be written, and nothing of it was.
        """
        frame = frame_of(self._encode(record))
        if self._size and self._size + len(frame) > self._segment_bytes:
            self.close()
            self._number, self._size = self._number + 1, 0
            self._forget_oldest()
        if self._fd < 0:
            path = segment_path(self._directory, self._number)
            self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
            self._size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, frame) < len(frame):
                raise OSError(f"no space left for {len(frame)} bytes in {self._directory}")
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(frame)

    def close(self) -> None:
        """Close the segment; appending can go on afterwards."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _forget_oldest(self) -> None:
        numbers = segment_numbers(self._directory)
        sizes = {number: segment_path(self._directory, number).stat().st_size for number in numbers}
        for number in numbers:
            if sum(sizes.values()) + self._segment_bytes <= self._limit_bytes:
                break
            segment_path(self._directory, number).unlink(missing_ok=True)
            del sizes[number]


class RemoteJournal:
    """The journal of one process of another machine; a record that is there already is not written again.

    Between the machines there may be a Collector that overtakes itself: a record that comes too early is refused, so
    that it comes again. One that has not come for a minute was lost there, and is counted.

    Args:
        path: Where it is.
        limit_bytes: Bytes that are kept of it.

    Attributes:
        lost: How many records never came.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        path.mkdir(exist_ok=True)
        reader = Reader(path, msgspec.Raw)
        self._count = released(path).records
        self._is_new = True
        while found := reader.read(final=True):
            self._count += len(found)
        reader.close()
        self._appender = Appender(path, limit_bytes)
        self._early: dict[int, float] = {}
        self._since = 0.0
        self.lost = 0

    def take(self, index: int, record: Record, now: float) -> None:
        """Write the record that is the next one.

        The first one after a start may be far ahead: the sender goes on only from what was taken, so those in between
        were here and have been removed by retention.

        Args:
            index: How many records were before it.
            record: The record.
            now: Seconds on a steady clock.

        Raises:
            OSError: It cannot be written, or one before it has not come yet.
        """
        if index > self._count and not self._is_new:
            self._wait_for_those_before(index, now)
        if index >= self._count:
            self._appender.append(record)
            self._count = index + 1
            self._early.pop(index, None)
            self._since = 0.0
        self._is_new = False

    def rest(self) -> None:
        """Give the descriptor back until the next record comes."""
        self._appender.close()

    def _wait_for_those_before(self, index: int, now: float) -> None:
        self._since = self._since or now
        self._early[index] = now
        self._early = {early: at for early, at in self._early.items() if now - at <= _PATIENCE_S}
        if now - self._since <= _PATIENCE_S or index > min(self._early):
            raise OSError(f"record {self._count} has not come yet, but {index}")
        logger.warning("%d records before %d never came", index - self._count, index)
        self.lost += index - self._count

"""The journals in which the head stores the records of other machines."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.modes import make_directory, open_file
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.segments import frame_of, released, segment_numbers, segment_path

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.journal.records import Record

logger = log_of(__name__)
_PATIENCE_S = 60.0
_MOST_EARLY_BYTES = 16 << 20
"""Bytes of early records of one process that are kept until the records before them arrive."""
EARLY = "early"


class Appender:
    """Appends to a journal by `write`: it reserves and maps nothing, and has no descriptor while it rests.

    A trainer cannot wait for the disk; the head can, and has thousands of journals. The directory must exist.
    """

    def __init__(self, directory: Path, limit_bytes: int, segment_bytes: int = 4 << 20) -> None:
        self._directory, self._limit_bytes, self._segment_bytes = directory, limit_bytes, segment_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._number = max(segment_numbers(directory), default=0) + 1  # the last segment may end in half a frame
        self._fd = -1
        self._size = 0

    def append(self, record: msgspec.Struct | msgspec.Raw) -> None:
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
            self._fd = open_file(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            self._size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, frame) < len(frame):
                raise OSError(f"no space left for {len(frame)} bytes in {self._directory}")
        except OSError:
            # A full disk takes a part of a frame. Readers would take all that follows it for damage.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(frame)

    def close(self) -> None:
        """Close the segment; the next record opens it again."""
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


def give_up_missing(journals: Path, limit_bytes: int) -> int:
    """Give up the records that have not arrived, since no process sends them any more; return their number.

    Raises:
        OSError: They cannot be written.
    """
    lost = 0
    for path in journals.glob(f"*/{EARLY}"):
        journal = RemoteJournal(path.parent, limit_bytes)
        while not journal.is_complete:
            journal.skip_missing(0.0)
        journal.close_files()
        lost += journal.lost
    return lost


class _Early(msgspec.Struct, array_like=True):
    """A record that arrived before its predecessors."""

    index: int
    record: msgspec.Raw


class RemoteJournal:
    """The journal of one process of another machine; a record that exists already is not written again.

    A Collector between the machines can change the order of requests. A record that arrives too early is kept in a
    second journal until its predecessors arrive; refusing it would make the Collector back off. Records that do not
    arrive within 60 s were lost on the way, and are counted in `lost`.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        make_directory(path)
        reader = Reader(path, msgspec.Raw)
        # Senders count from the first record, and segments that every exporter has are removed.
        self._count = released(path).records
        while records := reader.read(final=True):
            self._count += len(records)
        reader.close()
        self._appender = Appender(path, limit_bytes)
        self._beside = path / EARLY
        self._early_appender: Appender | None = None
        self._early = {index for index in self._read_early() if index >= self._count}
        self._early_bytes = 0
        self._since: float | None = None
        self.lost = 0

    @property
    def is_complete(self) -> bool:
        """Whether no early record waits for its predecessors."""
        return not self._early

    def receive(self, index: int, record: Record, now: float) -> None:
        """Write the record that has `index` records before it; `now` is in seconds on a monotonic clock.

        Raises:
            OSError: It cannot be written, or too many records are early.
        """
        if index == self._count:
            self._appender.append(record)
            self._count += 1
            self._take_early(now)
        elif index > self._count and index not in self._early:
            self._keep(index, record)
        self.give_up_late(now)

    def give_up_late(self, now: float) -> bool:
        """Give up records that have not arrived for 60 s; return whether there were any."""
        if not self._early:
            return False
        self._since = now if self._since is None else self._since
        if now - self._since <= _PATIENCE_S:
            return False
        self.skip_missing(now)
        return True

    def skip_missing(self, now: float) -> None:
        """Continue with the first record that has arrived."""
        first = min(self._early)
        logger.warning("%d records before record %d never arrived", first - self._count, first)
        self.lost += first - self._count
        self._count = first
        self._take_early(now)

    def close_files(self) -> None:
        """Close the descriptors until the next record."""
        self._appender.close()
        if self._early_appender is not None:
            self._early_appender.close()

    def _keep(self, index: int, record: Record) -> None:
        raw = msgspec.msgpack.encode(record)
        if self._early_bytes + len(raw) > _MOST_EARLY_BYTES:
            raise OSError(f"record {index} arrived, but record {self._count} has not")
        if self._early_appender is None:
            make_directory(self._beside)
            self._early_appender = Appender(self._beside, 2 * _MOST_EARLY_BYTES)
        self._early_appender.append(_Early(index, msgspec.Raw(raw)))
        self._early.add(index)
        self._early_bytes += len(raw)

    def _take_early(self, now: float) -> None:
        """Write the early records whose predecessors have arrived."""
        if not self._early:
            return
        self._since = now
        # Only if the next one is among them: otherwise each record that arrives meanwhile would read all of them again.
        records = self._read_early() if self._count in self._early else {}
        while (record := records.get(self._count)) is not None:
            self._appender.append(record)
            self._early.discard(self._count)
            self._count += 1
        self._early.discard(self._count)  # a damaged record counts as not arrived
        if not self._early:
            self._since, self._early_bytes = None, 0
            if self._early_appender is not None:
                self._early_appender.close()
                self._early_appender = None
            shutil.rmtree(self._beside, ignore_errors=True)

    def _read_early(self) -> dict[int, msgspec.Raw]:
        reader = Reader(self._beside, _Early)
        records: dict[int, msgspec.Raw] = {}
        while batch := reader.read(final=True):
            records |= {early.index: early.record for early in batch}
        reader.close()
        return records

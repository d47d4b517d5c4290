"""The writer of a journal.

A segment is reserved on disk and mapped into memory, and a record is one copy into that mapping. The kernel holds the
bytes when `append` returns, so they survive the process, but not a crash of the machine: the kernel writes them to disk
within seconds. A full disk is detected when a segment is reserved, never by a page fault while writing.

If another process truncates the file, a copy into the mapping would end this process with SIGBUS. So before a copy,
`madvise` asks the kernel to make the pages of the record writable. If they are gone, it fails, and the record goes into
a new segment. The call costs as much as writing a short record, so its answer is used for 20 µs; the first record after
a pause is always checked.

A truncation between the check and the copy still ends the process. Measured: 0 of 600 truncations ended a process that
wrote bursts of 13 records, 1 of 200 one that wrote 500 single records a second, and 5 of 60 one that wrote without a
pause. With a check for each record it was 0 of 600, 0 of 200 and 9 of 120. `pwrite` would never end the process, but it
releases the GIL: each record takes a third longer, and 1 in 100 takes 8 ms if another thread is busy.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import time
from os.path import samestat
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from otel_rl.recorder.files.descriptors import KeptDescriptor, kept
from otel_rl.recorder.files.modes import open_file
from otel_rl.recorder.journal.segments import (
    GAP,
    GAP_MAGIC,
    HEADER,
    LARGEST_FRAME,
    MAGIC,
    Position,
    frame_of,
    note_dropped,
    segment_numbers,
    segment_path,
)

if TYPE_CHECKING:
    from pathlib import Path

_pack = HEADER.pack
_ticks = time.monotonic_ns
_POPULATE_BYTES = 512 << 10
"""How much is mapped at a time: it takes 0.3 ms, once in about 170 records of 100 values."""

_POPULATE_AHEAD = 64 << 10
"""How many bytes before the end of the mapped part the next part is mapped: more than most records need."""

_DRAFT = ".draft"
_drafts = itertools.count()  # two drafts of one number have different names
_MADV_POPULATE_WRITE = 23  # Linux 5.14; Python does not define it yet
_IN_PAGE = mmap.PAGESIZE - 1
_ASK_EVERY_NS = 20_000
"""How long an answer of the kernel is used, in nanoseconds: a few records of a burst, and far less than any pause."""


class TooLargeError(ValueError):
    """A record is larger than `LARGEST_FRAME`."""


class Writer:
    """An append-only log of records, safe to use from several threads and from signal handlers.

    If an exception such as Ctrl-C interrupts a call, the writer stays usable. The record is complete or absent.

    Args:
        directory: Where the segments are.
        segment_bytes: The size of a segment.
        limit_bytes: The size of the journal above which the oldest segments are removed.

    Raises:
        OSError: No segment could be reserved: the directory is not writable, or the disk is full.
    """

    def __init__(self, directory: Path, *, segment_bytes: int = 4 << 20, limit_bytes: int = 1 << 30) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._limit_bytes = limit_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._is_closed = False
        self._can_ask = True
        self.asks_at = 0
        """When the kernel is asked again, in nanoseconds of the monotonic clock: never far from the last record."""
        for draft in directory.glob(f"*{_DRAFT}"):  # left by a killed process
            draft.unlink(missing_ok=True)
        self._kept = {number: segment_path(directory, number).stat().st_size for number in segment_numbers(directory)}
        self._records: dict[int, int] = {}  # in full segments, by their numbers
        self._segment = self._reserve(max(self._kept, default=0) + 1, 0)
        self._begin(self._segment)

    @property
    def position(self) -> Position:
        """The position of the next record."""
        segment = self._segment
        return Position(segment.number, segment.tell())

    def append(self, record: msgspec.Struct) -> None:
        """Write `record`. It survives the process once this returns.

        Raises:
            OSError: A new segment was needed and could not be reserved; the record is lost.
            TooLargeError: The record is larger than 64 MiB.
            ValueError: The writer is closed.
        """
        payload = self._encode(record)
        frame = _pack(MAGIC, len(payload), crc32(payload)) + payload
        size = len(frame)
        while True:
            # Read again in each turn: another thread, or a signal handler that logs, may have moved on meanwhile
            # (faults/test_signals.py).
            segment = self._segment
            try:
                if _ticks() > self.asks_at:
                    self._ask(segment, size)
                segment.write(frame)
                segment.records += 1  # CPython does not switch threads in between
                break
            except ValueError:  # the segment is full
                self._move_on(segment, size)
            except OSError as error:
                if error.errno == errno.EINVAL:  # a kernel before 5.14: only `check` can notice
                    self._can_ask = False
                else:
                    self._move_on(segment, size)
        if segment.tell() > segment.populate_at:
            segment.populate()

    def _ask(self, segment: _Segment, size: int) -> None:
        """Ask the kernel to make the pages of the next bytes writable.

        Raises:
            OSError: The pages are gone, or the kernel does not support the call.
        """
        if self._can_ask:
            in_page = segment.tell() & _IN_PAGE
            segment.ask(_MADV_POPULATE_WRITE, segment.tell() - in_page, size + in_page)
        self.asks_at = _ticks() + _ASK_EVERY_NS

    def check(self) -> None:
        """Start a new segment if the file was truncated or removed; write a removed file again.

        Call it periodically, because no reader sees what is written into a removed file.

        Raises:
            OSError: No segment could be reserved.
        """
        if self._is_closed:
            return
        segment = self._segment
        in_place, length = segment.measure()
        if in_place and length >= segment.size:
            return
        # Written again before the next segment appears: a reader would go on there, and count this one as lost
        # (faults/test_sigbus.py).
        if not in_place:
            segment.write_again()
        self._move_on(segment, 0)

    def close(self) -> None:
        """Truncate the last segment to what was written, and unmap it; a second call does nothing."""
        # Before the seal: a thread that then finds the segment full would reserve another one, which nobody closes
        # (faults/test_interrupted_journal.py).
        self._is_closed = True
        self._segment.seal()
        self._segment.unmap()

    def _move_on(self, full: _Segment, frame_bytes: int) -> None:
        """Start a new segment. Each line may run twice: after an interrupt, or in several threads at once."""
        if self._is_closed:
            raise ValueError("the journal is closed")
        if frame_bytes > LARGEST_FRAME:
            raise TooLargeError(f"invalid record of {frame_bytes} bytes: must be at most {LARGEST_FRAME} bytes")
        following = full.after.get(None)
        if following is None:
            gap = full.gap()
            reserved = self._reserve(full.number + 1, len(gap) + frame_bytes)
            # Before anybody can see the segment: the bytes that a cut destroyed are counted before the records behind
            # them are read (faults/test_sigbus.py).
            reserved.write(gap)
            following = full.after.setdefault(None, reserved)
            if following is not reserved:
                reserved.discard()
        full.seal()  # before readers can see the next one, since they then leave this one
        self._records[full.number] = full.records
        self._begin(following)
        # A thread that comes late would set the writer back to a segment that is full by now
        # (recorder/journal/test_several_at_once.py).
        if self._segment is full:
            self._segment = following

    def _reserve(self, number: int, frame_bytes: int) -> _Segment:
        segment = _Segment(self._directory, number, max(self._segment_bytes, frame_bytes))
        segment.populate()
        return segment

    def _begin(self, segment: _Segment) -> None:
        segment.publish()
        self._kept[segment.number] = segment.size
        for number in sorted(self._kept)[:-1]:
            if sum(list(self._kept.values())) <= self._limit_bytes:
                break
            oldest = segment_path(self._directory, number)
            # Noted before the removal: if the process is killed in between, the reader still knows how many records are
            # gone (recorder/journal/test_limits.py).
            if records := self._records.pop(number, 0):  # else an earlier writer's
                with contextlib.suppress(OSError):  # the agent has removed it, as it does with those that it has read
                    note_dropped(oldest, records)
            oldest.unlink(missing_ok=True)
            self._kept.pop(number, None)


_never_closed: list[mmap.mmap] = []


def _mapped(fd: int, size: int) -> tuple[mmap.mmap, KeptDescriptor | None]:
    """Return a mapping, and the copy of the descriptor that `mmap` keeps in it; `None` if the number is unknown."""
    number = os.dup(fd)  # the lowest one that is free, which `mmap` gets
    os.close(number)
    mapping = mmap.mmap(fd, size)
    with contextlib.suppress(OSError):
        if (copy := kept(number))[1:] == kept(fd)[1:]:
            return mapping, copy
    return mapping, None


class _Segment:
    """A reserved and mapped file, to which several threads may append.

    `mmap.write` copies and advances its position in one call, which neither a signal handler nor another thread can
    interrupt. So no lock is needed that an interrupt could leave held, and no write is half done.
    """

    __slots__ = (
        *("after", "ask", "copy", "draft", "file", "map", "number", "path"),
        *("populate_at", "populated", "records", "size", "tell", "write"),
    )

    def __init__(self, directory: Path, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.path = segment_path(directory, number)
        # Not `.seg` yet: a reader that sees the next segment takes this one for complete, and a killed process must not
        # leave an empty one.
        self.draft = directory / f"{number:08d}.{next(_drafts)}{_DRAFT}"
        self.after: dict[None, _Segment] = {}  # at most one entry; `setdefault` decides between threads
        self.populate_at = self.populated = self.records = 0
        fd = open_file(self.draft, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        try:
            _reserve(fd, size)
            self.file = os.fstat(fd)
            self.map, self.copy = _mapped(fd, size)
        except BaseException:  # Ctrl-C must not leave a file behind either
            self.discard()
            raise
        finally:
            os.close(fd)
        self.write, self.tell, self.ask = self.map.write, self.map.tell, self.map.madvise

    def discard(self) -> None:
        """Remove a segment that was not published."""
        self.draft.unlink(missing_ok=True)

    def publish(self) -> None:
        """Rename the file so that readers find it; a second call does nothing."""
        with contextlib.suppress(FileNotFoundError):
            self.draft.rename(self.path)

    def populate(self) -> None:
        """Map the next pages in advance: a page fault in every second record would cost more than the record."""
        length = min(_POPULATE_BYTES, self.size - self.populated)
        if length > 0:
            # Kernels before 5.14 refuse it, and so does a file that was cut; page faults then do the same, and `_ask`
            # finds the cut.
            with contextlib.suppress(OSError, ValueError):
                self.map.madvise(_MADV_POPULATE_WRITE, self.populated, length)
        self.populated += length
        self.populate_at = self.populated - _POPULATE_AHEAD if self.populated < self.size else self.size

    def seal(self) -> None:
        """Close the segment to writers, and truncate the file to what was written."""
        while (rest := self.size - self.tell()) > 0:
            try:
                self.map.seek(rest, os.SEEK_CUR)  # accesses no memory: the pages may be gone
            except ValueError:  # another thread wrote in between
                continue
            if self.measure() == (True, self.size):  # else the file was truncated or removed
                with contextlib.suppress(FileNotFoundError):
                    os.truncate(self.path, self.size - rest)

    def unmap(self) -> None:
        """Give the mapping and its descriptor back; the end stays known. A second call does nothing."""
        if not self.map.closed:
            # First, as another thread may ask for the position meanwhile. Without the unmapping, 1,200 runs in one
            # process ended in EMFILE (recorder/trainer/test_many_runs.py).
            self.tell = self.tell().__index__
            if self.copy is not None and self.copy.is_same:
                self.map.close()
            else:  # its number is something else's by now, which `close` and the garbage collection would close
                _never_closed.append(self.map)

    def __del__(self) -> None:
        """Unmap a full segment that no thread writes any more: collected alone, the mapping would close any file."""
        with contextlib.suppress(AttributeError):  # it was not reserved
            self.unmap()

    def measure(self) -> tuple[bool, int]:
        """Return whether the file is still at its path, and its size in bytes."""
        with contextlib.suppress(OSError):
            if samestat(stat := self.path.stat(), self.file):
                return True, stat.st_size
        with contextlib.suppress(OSError):  # the trainer closed the mapping's descriptor
            return False, self.map.size()
        return False, 0

    def gap(self) -> bytes:
        """Return the frame that records which bytes of this segment are missing; empty if none are."""
        end = self.tell()
        length = min(end, self.measure()[1])
        return frame_of(GAP.pack(self.number, length, end), GAP_MAGIC) if length < end else b""

    def write_again(self) -> None:
        """Write the content into a new file at the same path, after the file was removed; the mapping still has it."""
        end = self.tell()
        if self.measure()[1] < end:  # it was also truncated, so a part of the mapping is gone
            return
        with contextlib.suppress(FileExistsError):
            fd = open_file(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            try:
                os.write(fd, self.map[:end])
            finally:
                os.close(fd)


def _reserve(fd: int, size: int) -> None:
    # `ftruncate` would leave holes: on a full disk, the first copy into one ends the trainer with SIGBUS.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:  # macOS
        os.write(fd, bytes(size))

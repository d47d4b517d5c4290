"""The journal: an append-only file of framed records, and its reader in another process.

A frame is a header (magic, length, CRC-32 of the payload) and a MessagePack payload. Frames lie one
after the other in segments of a fixed size, named `00000001.seg`, `00000002.seg`, …; the rest of a
segment is zeros.

A segment is reserved on disk and mapped into memory, and a record is one copy into that mapping. The
bytes belong to the kernel when `append` returns, so they outlive the process (not the machine: the
kernel writes them to disk within seconds). A full disk is found out when a segment is reserved, never
by a fault while writing.

A copy into a file that somebody has cut would end the process with SIGBUS. So the kernel is asked before
a copy to make the pages of the record writable: where they are gone it answers with an error, and the
record goes into a new segment. The answer counts for 20 µs, since it costs as much as a short record: the
first record after any pause is asked for. What remains is a cut between the answer and the copy: none of 600
cuts ended a process that wrote bursts of 13 records, one of 200 a process that wrote 500 single records a
second, and 5 of 60 one that wrote without a pause; asked for each record it was 0 of 600, 0 of 200 and 9 of
120. `pwrite` leaves nothing, but gives up the GIL: each record takes a third longer, and beside a busy
thread one in a hundred takes 8 ms.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import mmap
import os
import struct
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"\xf7RLj"
_GAP_MAGIC = b"\xf7RLx"
_HEADER = struct.Struct("<4sII")
_pack = _HEADER.pack
_GAP = struct.Struct("<QQQ")  # segment, first byte that is missing, byte behind the last one
_NOTHING_YET = bytes(_HEADER.size)
_LARGEST_FRAME = 64 << 20
_READ_BYTES = 1 << 20
_POPULATE_BYTES = 512 << 10  # a third of a millisecond, once in some 170 records of 100 values
_POPULATE_AHEAD = 64 << 10  # of the end of what is populated: more than most records take
_DRAFT = ".draft"
_RELEASED = "released"
_drafts = itertools.count()  # two of one number never share a file
_MADV_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it yet
_IN_PAGE = mmap.PAGESIZE - 1
_ASK_EVERY_NS = 20_000
"""How long the kernel's answer counts, in nanoseconds: a few records of a burst, and far less than any pause."""
_ticks = time.monotonic_ns

T = TypeVar("T")


class TooLargeError(ValueError):
    """A record is larger than a journal takes."""


class Position(NamedTuple):
    """A place in a journal: segment number and offset in it; positions are ordered as the records are."""

    segment: int
    offset: int


START = Position(0, 0)


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of a segment."""
    return directory / f"{number:08d}.seg"


def frame_of(payload: bytes) -> bytes:
    """Return a payload as it lies in a segment."""
    return _pack(MAGIC, len(payload), crc32(payload)) + payload


def segment_numbers(directory: Path) -> list[int]:
    """Return the numbers of the segments in `directory`, ascending."""
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".seg") and name[:-4].isdigit())


class _Segment:
    """A reserved and mapped file; what is appended to it lies side by side, whoever writes.

    `mmap.write` moves its own position and copies, in one call that neither a signal handler nor another thread
    interrupts: so there is no lock that an interrupt could leave held, and no half of a change.
    """

    __slots__ = (
        *("after", "ask", "draft", "file", "map", "number", "path"),
        *("populate_at", "populated", "size", "tell", "write"),
    )

    def __init__(self, directory: Path, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.path = segment_path(directory, number)
        self.draft = directory / f"{number:08d}.{next(_drafts)}{_DRAFT}"
        self.after: dict[None, _Segment] = {}  # at most one; `setdefault` decides between threads
        self.populate_at = self.populated = 0
        fd = os.open(self.draft, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
        try:
            _reserve(fd, size)
            self.map = mmap.mmap(fd, size)
            self.file = _file(os.fstat(fd))
        except BaseException:  # a Ctrl-C too must not leave a file behind
            self.discard()
            raise
        finally:
            os.close(fd)
        self.write, self.tell, self.ask = self.map.write, self.map.tell, self.map.madvise

    def discard(self) -> None:
        """Remove what no reader has seen."""
        self.draft.unlink(missing_ok=True)

    def publish(self) -> None:
        """Give it the name by which readers find it; whoever comes second has nothing to do."""
        with contextlib.suppress(FileNotFoundError):
            self.draft.rename(self.path)

    def populate(self) -> None:
        """Map the next pages before they are needed: a fault in every second record would cost more than the record."""
        length = min(_POPULATE_BYTES, self.size - self.populated)
        if length > 0:
            with contextlib.suppress(OSError, ValueError):
                self.map.madvise(_MADV_POPULATE_WRITE, self.populated, length)
        self.populated += length
        self.populate_at = self.populated - _POPULATE_AHEAD if self.populated < self.size else self.size

    def seal(self) -> None:
        """Take what is left, so that nobody writes there, and give it back to the disk."""
        while (rest := self.size - self.tell()) > 0:
            try:
                self.map.seek(rest, os.SEEK_CUR)  # touches no memory, which may be gone
            except ValueError:  # another thread has written meanwhile
                continue
            if self.look() == (True, self.size):  # else somebody cut or removed it
                with contextlib.suppress(FileNotFoundError):
                    os.truncate(self.path, self.size - rest)

    def look(self) -> tuple[bool, int]:
        """Return whether the file is still where it was, and its bytes."""
        with contextlib.suppress(OSError):
            if _file(found := self.path.stat()) == self.file:
                return True, found.st_size
        with contextlib.suppress(OSError):  # somebody closed the mapping's descriptor
            return False, self.map.size()
        return False, 0

    def gap(self) -> bytes:
        """Return the frame that tells what is missing of it; empty if nothing is."""
        end = self.tell()
        there = min(end, self.look()[1])
        payload = _GAP.pack(self.number, there, end)
        return _pack(_GAP_MAGIC, len(payload), crc32(payload)) + payload if there < end else b""

    def write_again(self) -> None:
        """Write what it holds into a new file of its name; the mapping still has it though the file was removed."""
        end = self.tell()
        if self.look()[1] < end:  # it was cut as well, and a part of it is no memory any more
            return
        with contextlib.suppress(FileExistsError):
            fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            try:
                os.write(fd, self.map[:end])
            finally:
                os.close(fd)


class Released(msgspec.Struct, frozen=True):
    """What was removed from a journal because nobody needed it any more.

    Attributes:
        first: The first segment that was not removed for that reason.
        records: How many records were in those that were, if somebody has to know.
    """

    first: int = 0
    records: int = 0


def released(directory: Path) -> Released:
    """Return what was removed from a journal because nobody needed it any more."""
    try:
        return msgspec.json.decode((directory / _RELEASED).read_bytes(), type=Released)
    except (OSError, msgspec.MsgspecError):
        return Released()


def set_released(directory: Path, what: Released) -> None:
    """Take note of what is not needed any more, before it is removed.

    Raises:
        OSError: It cannot be written now.
    """
    fresh = directory / f".{_RELEASED}"
    fresh.write_bytes(msgspec.json.encode(what))
    fresh.replace(directory / _RELEASED)


class Writer:
    """Appends records to the journal in `directory`; safe to use from several threads and from signal handlers.

    An exception that comes in the midst of a call, such as a Ctrl-C, leaves it usable: the record is in the journal or
    it is not. A journal of more than `limit_bytes` loses its oldest segments.

    Raises:
        OSError: No segment could be reserved: the directory cannot be written, or the disk is full.
    """

    def __init__(self, directory: Path, *, segment_bytes: int = 4 << 20, limit_bytes: int = 1 << 30) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._limit_bytes = limit_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._is_closed = False
        self._ask_at: float = 0  # in nanoseconds of the monotonic clock
        for draft in directory.glob(f"*{_DRAFT}"):  # of a process that was killed
            draft.unlink(missing_ok=True)
        self._kept = {number: segment_path(directory, number).stat().st_size for number in segment_numbers(directory)}
        self._segment = self._reserve(max(self._kept, default=0) + 1, 0)
        self._begin(self._segment)

    @property
    def position(self) -> Position:
        """Where the next record will be written."""
        segment = self._segment
        return Position(segment.number, segment.tell())

    def append(self, record: msgspec.Struct) -> None:
        """Write `record`; it survives the process once this returns.

        Raises:
            OSError: A new segment was needed and could not be reserved; the record is lost.
            TooLargeError: The record is larger than 64 MiB.
            ValueError: The writer is closed.
        """
        payload = self._encode(record)
        frame = _pack(MAGIC, len(payload), crc32(payload)) + payload
        size = len(frame)
        while True:
            segment = self._segment
            try:
                if _ticks() > self._ask_at:
                    self._ask(segment, size)
                segment.write(frame)
                break
            except ValueError:  # there is no room
                self._move_on(segment, size)
            except OSError as error:
                if error.errno == errno.EINVAL:  # an old kernel; `check` is all there is then
                    self._ask_at = math.inf
                else:
                    self._move_on(segment, size)
        if segment.tell() > segment.populate_at:
            segment.populate()

    def _ask(self, segment: _Segment, size: int) -> None:
        """Ask the kernel for the memory that the next bytes take.

        Raises:
            OSError: It is gone, or the kernel does not know the question.
        """
        in_page = segment.tell() & _IN_PAGE
        segment.ask(_MADV_POPULATE_WRITE, segment.tell() - in_page, size + in_page)
        self._ask_at = _ticks() + _ASK_EVERY_NS

    def check(self) -> None:
        """Go on in a new segment if the present one was cut or removed; write a removed one again.

        To be called now and then: what is written into a removed file is seen by nobody.

        Raises:
            OSError: No segment could be reserved.
        """
        segment = self._segment
        in_place, there = segment.look()
        if self._is_closed or (in_place and there >= segment.size):
            return
        if not in_place:
            segment.write_again()
        self._move_on(segment, 0)

    def moved(self, directory: Path) -> None:
        """Take note that the directory was renamed."""
        self._directory = directory
        self._segment.path = segment_path(directory, self._segment.number)

    def close(self) -> None:
        """Give back the reserved rest of the last segment; a second call does nothing."""
        self._is_closed = True
        self._segment.seal()

    def _move_on(self, full: _Segment, frame_bytes: int) -> None:
        """Go on in a new segment. Each line may come twice: after an interrupt, or in several threads at once."""
        if self._is_closed:
            raise ValueError("the journal is closed")
        if frame_bytes > _LARGEST_FRAME:
            raise TooLargeError(f"a record of {frame_bytes} bytes: at most {_LARGEST_FRAME} are allowed")
        following = full.after.get(None)
        if following is None:
            gap = full.gap()
            reserved = self._reserve(full.number + 1, len(gap) + frame_bytes)
            reserved.write(gap)
            following = full.after.setdefault(None, reserved)
            if following is not reserved:
                reserved.discard()
        full.seal()  # before readers see the next one, for which they would leave this one
        self._begin(following)
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
            segment_path(self._directory, number).unlink(missing_ok=True)
            self._kept.pop(number, None)


def _file(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _reserve(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:  # macOS
        os.write(fd, bytes(size))


@cache
def _decoder(type_: Any) -> Any:
    """Return the decoder of a type; that of all records takes some kilobytes, and there may be thousands of readers."""
    return msgspec.msgpack.Decoder(type_)


class Reader(Generic[T]):
    """Reads the records of a journal that may still be written, from `position` on.

    Attributes:
        position: Behind the last record that was read.
        skipped_bytes: Bytes that were no valid frame, and bytes that are gone since somebody cut a segment.
        lost_segments: Segments that retention had removed before they were read.
        undecodable: Frames that were intact but held no record of type `T`.
        unfinished_bytes: Of the skipped ones, those of a last record that its process was killed in the middle of.
    """

    def __init__(self, directory: Path, type_: type[T], position: Position = START) -> None:
        self.position = self._left = position
        self.lost_segments = self.undecodable = 0
        self._skipped = self._torn_tail = self.unfinished_bytes = 0
        self._directory = directory
        self._decode = _decoder(type_).decode  # type: ignore[arg-type] # a type is hashable
        self._fd = -1

    @property
    def skipped_bytes(self) -> int:
        """Bytes that were no valid frame, so far."""
        return self._skipped + self._torn_tail

    @property
    def is_open(self) -> bool:
        """Whether a segment is open, which takes a descriptor."""
        return self._fd >= 0

    def read(self, limit: int = 1000, *, final: bool = False) -> list[T]:
        """Return the next records, at most `limit`; an empty list when there are none yet.

        Args:
            limit: How many at most.
            final: Nobody writes any more: a torn tail counts as skipped. Should it be completed after all, it is read.
        """
        records: list[T] = []
        while len(records) < limit:
            if self._read_segment(records, limit):
                continue
            following = self._following()
            # Whoever opened the next segment had written this one to its end: what is left here is torn.
            if self._read_segment(records, limit) or self._resync(ended=following is not None, final=final):
                continue
            if following is None:
                break
            self._move_to(following)
        return records

    def close(self) -> None:
        """Close the open segment; reading can go on afterwards."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _following(self) -> int | None:
        return next((n for n in segment_numbers(self._directory) if n > self.position.segment), None)

    def _move_to(self, number: int) -> None:
        read_to_its_end = self._fd >= 0 or self.position == START
        expected = self.position.segment + (1 if read_to_its_end else 0)
        if number > expected:
            self.lost_segments += max(0, number - max(expected, released(self._directory).first))
        self.close()
        self._left, self.position = self.position, Position(number, 0)

    def _is_open(self) -> bool:
        if self._fd < 0 and self.position.segment:
            with contextlib.suppress(FileNotFoundError):
                self._fd = os.open(segment_path(self._directory, self.position.segment), os.O_RDONLY)
        return self._fd >= 0

    def _read_segment(self, records: list[T], limit: int) -> bool:
        """Append the intact frames from here on; tell whether there was one."""
        found = False
        while self._is_open() and len(records) < limit:
            segment, offset = self.position
            header = os.pread(self._fd, _HEADER.size, offset)
            if len(header) < _HEADER.size or header == _NOTHING_YET:
                break
            _, length, _ = _HEADER.unpack(header)
            block = os.pread(self._fd, max(_READ_BYTES, _HEADER.size + min(length, _LARGEST_FRAME)), offset)
            at = 0
            while len(records) < limit and (payload := _payload(block, at)) is not None:
                if block.startswith(_GAP_MAGIC, at):
                    self._count_gap(*_GAP.unpack(payload))
                else:
                    try:
                        records.append(self._decode(payload))
                    except msgspec.MsgspecError:
                        self.undecodable += 1
                at += _HEADER.size + len(payload)
            if at == 0:
                break
            found = True
            self._torn_tail = self.unfinished_bytes = 0
            self.position = Position(segment, offset + at)
        return found

    def _count_gap(self, segment: int, first: int, end: int) -> None:
        read_to = self._left.offset if self._left.segment == segment else 0
        self._skipped += max(0, end - max(first, read_to))

    def _resync(self, *, ended: bool, final: bool) -> bool:
        """Skip what is no frame up to the next intact one, else to the end of a segment that has ended."""
        if self._fd < 0:
            return False
        segment, offset = self.position
        to_end = ended or final
        if not to_end and os.pread(self._fd, _HEADER.size, offset) in (b"", _NOTHING_YET):
            return False
        rest = os.pread(self._fd, max(0, os.fstat(self._fd).st_size - offset), offset)
        at = rest.find(MAGIC, 1)
        while at >= 0 and _payload(rest, at) is None:
            at = rest.find(MAGIC, at + 1)
        if at < 0 and not to_end:
            return False
        if at > 0 and _payload(os.pread(self._fd, at, offset), 0) is not None:
            return True  # it was still being written at the first look, and no longer is: a frame follows
        torn = rest if at < 0 else rest[:at]
        self._torn_tail = len(torn.rstrip(b"\0"))
        self.unfinished_bytes = self._torn_tail if at < 0 and not ended and _is_unfinished(rest) else 0
        if at >= 0 or ended:
            self._skipped, self._torn_tail = self.skipped_bytes, 0
            self.position = Position(segment, offset + len(torn))
        return at >= 0


def payloads(directory: Path, number: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the payload of each intact frame of a segment, and the offset behind it."""
    try:
        content = segment_path(directory, number).read_bytes()
    except FileNotFoundError:
        return
    at = 0
    while at >= 0:
        if (payload := _payload(content, at)) is None:
            at = content.find(MAGIC, at + 1)
        else:
            at += _HEADER.size + len(payload)
            yield payload, at


def _is_unfinished(rest: bytes) -> bool:
    """Tell whether the last frame of a segment that nobody closed was not written to its end; else it is damaged.

    What was not written is zero, from some byte on, or the header where that is copied last.
    """
    if len(rest) < _HEADER.size or rest.startswith(_NOTHING_YET):
        return True
    magic, length, _ = _HEADER.unpack_from(rest)
    end = _HEADER.size + length
    is_open = len(rest) >= end + _HEADER.size and not any(rest[end:])  # one that was closed has nothing behind
    return bool(magic == MAGIC and is_open and len(rest.rstrip(b"\0")) < end)


def _payload(block: bytes, at: int) -> memoryview | None:
    """Return the payload of the frame at `at`, or `None` if there is no intact frame."""
    if len(block) - at < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(block, at)
    start = at + _HEADER.size
    is_frame = magic == MAGIC or (magic, length) == (_GAP_MAGIC, _GAP.size)
    if not is_frame or not 0 < length <= len(block) - start:  # nothing has the checksum of nothing
        return None
    payload = memoryview(block)[start : start + length]
    return payload if crc32(payload) == checksum else None

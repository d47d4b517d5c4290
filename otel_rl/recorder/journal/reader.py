"""The reader of a journal, which another process may still be writing."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.journal.segments import (
    GAP,
    GAP_MAGIC,
    HEADER,
    LARGEST_FRAME,
    MAGIC,
    START,
    Position,
    dropped,
    payload_at,
    released,
    segment_numbers,
    segment_path,
)

if TYPE_CHECKING:
    from pathlib import Path

_NOTHING_YET = bytes(HEADER.size)
_READ_BYTES = 1 << 20
_MOST_BYTES = 8 << 20
"""Bytes of records that one read returns, to bound memory."""

T = TypeVar("T")


@cache
def _decoder(type_: Any) -> Any:
    """Return the decoder of a type, shared by all readers: one for all records takes several kilobytes."""
    return msgspec.msgpack.Decoder(type_)


class Reader(Generic[T]):
    """A reader of the records from `position` on, which moves behind each record that is read."""

    def __init__(self, directory: Path, type_: type[T], position: Position = START) -> None:
        self.position = self._left = position
        self.lost_segments = 0  # segments that retention removed before they were read
        self.lost_records = 0  # records in them; those of a segment that was partly read are estimated
        self.undecodable = 0  # intact frames that did not hold a record of type `T`
        self._skipped = self._torn_tail = 0
        # The part of `skipped_bytes` that belongs to a last record, whose process was killed while writing it.
        self.unfinished_bytes = 0
        self._directory = directory
        self.bytes_read, self.has_more = 0, False  # by the last read, and whether it stopped at a limit
        self._decode = _decoder(type_).decode  # type: ignore[arg-type] # a type is hashable
        self._fd = -1

    @property
    def skipped_bytes(self) -> int:
        """Bytes that were not part of an intact frame, and bytes lost because a segment was truncated."""
        return self._skipped + self._torn_tail

    @property
    def is_open(self) -> bool:
        """Whether a segment is open, which uses a file descriptor."""
        return self._fd >= 0

    def read(self, limit: int = 1000, *, final: bool = False) -> list[T]:
        """Return the next records, at most `limit`; an empty list if there are none yet.

        A read stops after 8 MiB too, since a record can be large.

        Args:
            limit: The largest number of records to return.
            final: If true, the writer has ended, so an incomplete last frame counts as skipped. If it is completed
                nevertheless, it is read.
        """
        records: list[T] = []
        self.bytes_read = 0
        while not (has_more := len(records) >= limit or self.bytes_read >= _MOST_BYTES):
            if self._read_segment(records, limit):
                continue
            # Listed before the rest is read: listed afterwards, records that were written between the two looks would
            # be left behind (recorder/journal/test_several_at_once.py).
            following = self._following()
            # A writer completes a segment before it opens the next one, so whatever is left here is incomplete.
            if self._read_segment(records, limit) or self._resync(ended=following is not None, final=final):
                continue
            if following is None:
                break
            self._move_to(following)
        self.has_more = has_more
        return records

    def close(self) -> None:
        """Close the open segment; a later `read` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _following(self) -> int | None:
        return next((n for n in segment_numbers(self._directory) if n > self.position.segment), None)

    def _move_to(self, number: int) -> None:
        read_to_its_end = self._fd >= 0 or self.position == START
        expected = self.position.segment + (1 if read_to_its_end else 0)
        if number > expected:
            removed = range(max(expected, released(self._directory).first), number)
            sizes = dropped(self._directory)
            self.lost_segments += len(removed)
            for gone in removed:
                # A writer that was killed before its note leaves no number: the segment counts as one record, so that a
                # loss never looks like none.
                records, size = sizes.get(gone, (1, 0))
                read = self.position.offset if gone == self.position.segment else 0
                self.lost_records += round(records * (size - read) / size) if size else records
        self.close()
        self._left, self.position = self.position, Position(number, 0)

    def _is_open(self) -> bool:
        if self._fd < 0 and self.position.segment:
            with contextlib.suppress(FileNotFoundError):
                self._fd = os.open(segment_path(self._directory, self.position.segment), os.O_RDONLY)
        return self._fd >= 0

    def _read_segment(self, records: list[T], limit: int) -> bool:
        """Append the records of the next intact frames; return whether there was one."""
        is_new = False
        while self._is_open() and len(records) < limit and self.bytes_read < _MOST_BYTES:
            segment, offset = self.position
            header = os.pread(self._fd, HEADER.size, offset)
            if len(header) < HEADER.size or header == _NOTHING_YET:
                break
            _, length, _ = HEADER.unpack(header)
            block = os.pread(self._fd, max(_READ_BYTES, HEADER.size + min(length, LARGEST_FRAME)), offset)
            at = 0
            while len(records) < limit and (payload := payload_at(block, at)) is not None:
                if block.startswith(GAP_MAGIC, at):
                    self._count_gap(*GAP.unpack(payload))
                else:
                    try:
                        records.append(self._decode(payload))
                    except UNDECODABLE:
                        self.undecodable += 1
                at += HEADER.size + len(payload)
            if at == 0:
                break
            is_new = True
            # A tail that looked torn is complete by now: its process was stopped, not dead
            # (faults/test_liveness.py).
            self._torn_tail = self.unfinished_bytes = 0
            self.position = Position(segment, offset + at)
            self.bytes_read += at
        return is_new

    def _count_gap(self, segment: int, first: int, end: int) -> None:
        read_to = self._left.offset if self._left.segment == segment else 0
        self._skipped += max(0, end - max(first, read_to))

    def _resync(self, *, ended: bool, final: bool) -> bool:
        """Skip damaged bytes up to the next intact frame, or to the end if the segment has ended."""
        if self._fd < 0:
            return False
        segment, offset = self.position
        to_end = ended or final
        if not to_end and os.pread(self._fd, HEADER.size, offset) in (b"", _NOTHING_YET):
            return False
        rest = os.pread(self._fd, max(0, os.fstat(self._fd).st_size - offset), offset)
        at = rest.find(MAGIC, 1)
        while at >= 0 and payload_at(rest, at) is None:
            at = rest.find(MAGIC, at + 1)
        if at < 0 and not to_end:
            return False
        if at > 0 and payload_at(os.pread(self._fd, at, offset), 0) is not None:
            return True  # the frame here was completed after the first look
        torn = rest if at < 0 else rest[:at]
        self._torn_tail = len(torn.rstrip(b"\0") if at < 0 else torn)  # zeros before a frame were records
        self.unfinished_bytes = self._torn_tail if at < 0 and not ended and _is_unfinished(rest) else 0
        if at >= 0 or ended:
            self._skipped, self._torn_tail = self.skipped_bytes, 0
            self.position = Position(segment, offset + len(torn))
        return at >= 0


def _is_unfinished(rest: bytes) -> bool:
    """Return whether the last frame of an unclosed segment is incomplete; otherwise it is damaged.

    In an incomplete frame all bytes from some offset on are zero, or the header is, if it is copied last.
    """
    if len(rest) < HEADER.size or rest.startswith(_NOTHING_YET):
        return True
    magic, length, _ = HEADER.unpack_from(rest)
    end = HEADER.size + length
    is_open = len(rest) >= end + HEADER.size and not any(rest[end:])  # a closed segment ends with its last frame
    return bool(magic == MAGIC and is_open and len(rest.rstrip(b"\0")) < end)

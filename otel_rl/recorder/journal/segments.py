"""The files of a journal: segments of framed records.

A frame is a header (magic, length, CRC-32 of the payload) and a MessagePack payload. Frames follow each other without
gaps in segments of a fixed size, named `00000001.seg`, `00000002.seg`, …; the rest of a segment is zeros. `writer.py`
appends frames, `reader.py` reads them in another process.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from otel_rl.recorder.files.atomic_files import number_in, read_json, write_atomically
from otel_rl.recorder.files.modes import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"\xf7RLj"
GAP_MAGIC = b"\xf7RLx"
HEADER = struct.Struct("<4sII")
"""Magic, payload length in bytes, CRC-32 of the payload."""

GAP = struct.Struct("<QQQ")
"""The payload of a gap frame: segment number, offset of the first missing byte, offset after the last one."""

LARGEST_FRAME = 64 << 20
"""The largest record, in bytes. A larger length in a header is damage."""

_RELEASED = "released"
_DROPPED = "dropped"


class Position(NamedTuple):
    """A place in a journal: segment number and offset in bytes. Positions sort in the order of the records."""

    segment: int
    offset: int


START = Position(0, 0)


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of a segment."""
    return directory / f"{number:08d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """Return the numbers of the segments in `directory`, ascending."""
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    numbers = (number_in(name[:-4]) for name in names if name.endswith(".seg"))
    return sorted(number for number in numbers if number)


def frame_of(payload: bytes, magic: bytes = MAGIC) -> bytes:
    """Encode a payload as a frame."""
    return HEADER.pack(magic, len(payload), crc32(payload)) + payload


def payload_at(block: bytes, at: int) -> memoryview | None:
    """Return the payload of the frame at offset `at`, or `None` if there is no intact frame."""
    if len(block) - at < HEADER.size:
        return None
    magic, length, checksum = HEADER.unpack_from(block, at)
    start = at + HEADER.size
    is_frame = magic == MAGIC or (magic, length) == (GAP_MAGIC, GAP.size)
    if not is_frame or not 0 < length <= len(block) - start:  # a header of zeros has a valid checksum
        return None
    payload = memoryview(block)[start : start + length]
    return payload if crc32(payload) == checksum else None


def payloads(directory: Path, number: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the payload of each intact frame of a segment, with the offset after it."""
    try:
        content = segment_path(directory, number).read_bytes()
    except FileNotFoundError:
        return
    at = 0
    while at >= 0:
        if (payload := payload_at(content, at)) is None:
            at = content.find(MAGIC, at + 1)
        else:
            at += HEADER.size + len(payload)
            yield payload, at


class Released(msgspec.Struct, frozen=True):
    """The segments that were removed from a journal because all of their records were delivered."""

    first: int = 0  # the first segment that was not removed for that reason
    records: int = 0  # number of records in the removed segments, where a reader reports it


def note_dropped(segment: Path, records: int) -> None:
    """Note how many records and bytes are in a segment that will be removed, whether they were read or not.

    The segment itself is not read: the caller is the trainer's thread.

    Raises:
        OSError: It is not there, or the note cannot be written.
    """
    size = segment.stat().st_size
    fd = open_file(segment.with_name(_DROPPED), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"%d %d %d\n" % (int(segment.stem), records, size))
    finally:
        os.close(fd)


def dropped(directory: Path) -> dict[int, tuple[int, int]]:
    """Return the records and bytes of each segment that was removed because the journal had reached its limit."""
    sizes: dict[int, tuple[int, int]] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (directory / _DROPPED).read_bytes().splitlines():
            number, records, size = map(int, line.split())
            sizes[number] = records, size
    return sizes


def released(directory: Path) -> Released:
    """Read which segments were removed after delivery."""
    return read_json(directory / _RELEASED, Released) or Released()


def set_released(directory: Path, what: Released) -> None:
    """Record which segments will be removed; call it before removing them.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(directory / _RELEASED, msgspec.json.encode(what))

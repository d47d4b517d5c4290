"""Atomic replacement of files, reading what was written that way, and the disk space that files use."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
_CHECKSUM_BYTES = 4


def make_directory(place: Path) -> None:
    """Make a directory and its parents; if `place` is a dangling symbolic link, make its target.

    Raises:
        OSError: The directory cannot be made.
    """
    try:
        place.resolve().mkdir(parents=True, exist_ok=True)
    except RuntimeError as error:  # Python before 3.13 does not raise OSError for links in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file in one step, so that a reader sees either the old or the new content.

    Raises:
        OSError: The file cannot be written. The error names `path`, not the temporary file.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # a pid is not unique: containers count from 1
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write_first(path: Path, content: bytes) -> bool:
    """Write a file that does not exist yet; return false if another process was faster."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def read_json(path: Path, kind: type[T]) -> T | None:
    """Return the content of a JSON file; `None` if it is missing, damaged or of another type."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def read_line(path: Path) -> str:
    """Return the text of a file of one line; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_number(path: Path) -> int:
    """Return the number that is the text of a file; 0 if there is none."""
    text = read_line(path)
    return int(text) if text.isdecimal() else 0


def write_checked(path: Path, content: msgspec.Struct) -> None:
    """Replace a file by MessagePack behind its CRC-32.

    Raises:
        OSError: The file cannot be written.
    """
    raw = msgspec.msgpack.encode(content)
    write_atomically(path, crc32(raw).to_bytes(_CHECKSUM_BYTES, "big") + raw)


def read_checked(path: Path, kind: type[T]) -> T | None:
    """Return what `write_checked` wrote; `None` if it is missing, damaged or of another type."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        raw = path.read_bytes()
        if crc32(raw[_CHECKSUM_BYTES:]) == int.from_bytes(raw[:_CHECKSUM_BYTES], "big"):
            return msgspec.msgpack.decode(raw[_CHECKSUM_BYTES:], type=kind)
    return None


def disk_usage(path: Path) -> int:
    """Return the disk space of a directory tree in bytes; files that vanish during the walk count as 0."""
    found = 0
    for directory, directories, files in os.walk(path):  # unlike `rglob`, it tolerates directories that vanish
        for name in [*directories, *files]:
            with contextlib.suppress(OSError):
                found += os.stat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH116, PTH118
    return found

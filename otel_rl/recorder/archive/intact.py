"""Whether files have what was written: their checksum, and their run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.written import is_foreign
from otel_rl.recorder.files.own_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from otel_rl.recorder.archive.files import File

_AT_ONCE, _MOST_BYTES = 1 << 20, 1 << 30
"""Bytes that are read at once, and those of the largest file; the writer's files are smaller than 64 MiB."""


class DamagedError(ValueError):
    """A file whose bytes are not those that were written, or not for this run."""


def read(file: File) -> bytes:
    """Return the bytes of a file.

    Raises:
        DamagedError: They are not those that were written.
        FileNotFoundError: It was deleted; list the files again.
    """
    with open_regular(file.path, links=False) as opened:
        data = opened.read(_MOST_BYTES + 1)
    _check(file, crc32(data), len(data))
    return data


def check(file: File) -> None:
    """Read a file without keeping its bytes.

    Raises:
        DamagedError: They are not those that were written.
        FileNotFoundError: It was deleted; list the files again.
    """
    checksum = size = 0
    with open_regular(file.path, links=False) as opened:
        while size <= _MOST_BYTES and (data := opened.read(_AT_ONCE)):
            checksum, size = crc32(data, checksum), size + len(data)
    _check(file, checksum, size)


def is_intact(file: File) -> bool:
    """Return whether the bytes of a file are those that were written for this run."""
    try:
        check(file)
    except (DamagedError, PermissionError):  # a link, or somebody else's
        return False
    return True


def covering(listed: Iterable[File], is_good: Callable[[File], bool] = is_intact) -> tuple[list[File], list[File]]:
    """Return the good files that together have every item once, and the bad ones in their places.

    A young file may have what a bad one that covers it has lost.
    """
    left, bad = list(listed), list[files.File]()
    while True:
        chosen = files.covering(left)
        wrong = [file for file in chosen if not is_good(file)]
        if not wrong:
            return chosen, bad
        bad += wrong
        left = [file for file in left if file not in wrong]


def of_table(place: Path, table: str) -> list[File]:
    """Return the intact files that together have every item of a table once; each is read once for that.

    Raises:
        OSError: A file was deleted, or cannot be read now.
    """
    return covering(files.every(place, table))[0]


def _check(file: File, checksum: int, size: int) -> None:
    if size > _MOST_BYTES or f"{checksum:08x}" != file.checksum:
        raise DamagedError(f"{file.path} is damaged: its content has another checksum than its name")
    if is_foreign(file):
        raise DamagedError(f"{file.path} is a file of another run")

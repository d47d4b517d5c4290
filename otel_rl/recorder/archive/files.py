"""Files of a table: each has its range and its checksum in its name, and is never changed.

A name such as `00000000-00001024.9f3c21aa.parquet` says which items of the table are in the file, and its CRC-32:
Parquet itself does not notice a flipped bit. Sealed files do not overlap. A file of the tail may be covered by a sealed
one that was made of it, until it is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from otel_rl.recorder.files.atomic_files import number_in, read_line, write_atomically
from otel_rl.recorder.files.modes import make_directory, open_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TAIL = "tail"
"""The folder of the young files in the folder of a machine."""
ROWS_FILE, MACHINE_FILE, END_FILE = "rows.jsonl", "machine.jsonl", "run.end.json"
"""Files of a run directory that are read if it has no archive."""
_NAME = re.compile(r"(\d{8,18})-(\d{8,18})\.([0-9a-f]{8})\.parquet")
_UNFINISHED = ".{}.unfinished"
"""The note in a folder of a range that is being written into several tables, by the last of them."""
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NOT_SYNCHRONIZED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF)
"""Errors of file systems that synchronize no directories."""


class File(NamedTuple):
    """A file with the items from `first` up to, but without, `end`."""

    first: int
    end: int
    checksum: str
    path: Path


def listed(folder: Path) -> list[File]:
    """Return the files in a folder that have a name of the archive, in order; other files are ignored."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        return []
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return sorted(File(int(match[1]), int(match[2]), match[3], folder / match[0]) for match in matches)


def of_table(place: Path, table: str) -> list[File]:
    """Return the files that together have every item of a table once: a long one covers those inside it."""
    return covering(every(place, table))


def every(place: Path, table: str) -> list[File]:
    """Return all files of a table, young ones first."""
    tail = listed(place / TAIL / table)  # first: a file of the tail is deleted after a sealed one has its items
    return [*tail, *listed(place / table)]


def covering(files: Iterable[File]) -> list[File]:
    """Return the files that are not inside of others, in order; of two with the same range, one."""
    chosen: list[File] = []
    for file in sorted(files, key=lambda file: (file.first, -file.end, file.path.parts)):
        if not chosen or file.end > chosen[-1].end:
            chosen.append(file)
    return chosen


def holes(files: Iterable[File]) -> list[tuple[int, int]]:
    """Return the ranges that no file has, between the first item and the last one."""
    ranges: list[tuple[int, int]] = []
    reached = 0
    for file in files:
        if file.first > reached:
            ranges.append((reached, file.first))
        reached = max(reached, file.end)
    return ranges


def write(folder: Path, first: int, end: int, data: bytes | memoryview) -> Path:
    """Write a file so that it is whole and on disk when it has its name, and return its path.

    Raises:
        OSError: It cannot be written now.
    """
    path = folder / f"{first:08d}-{end:08d}.{crc32(data):08x}.parquet"
    make_directory(folder)
    draft = path.with_name(f".{path.name}.draft")  # one writer: what is left of a draft is written over
    try:
        with open(open_file(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), "wb") as opened:  # noqa: PTH123
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())  # before the name: after a crash of the machine, a name may have no bytes
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    # The directory too: after a power loss, a file whose name is not on disk is gone, with items that were reported as
    # delivered.
    synchronize(folder)
    return path


def note_unfinished(folder: Path, table: str, first: int, end: int) -> None:
    """Note the range that is being written into several tables, of which `table` is the last.

    Raises:
        OSError: It cannot be written now.
    """
    write_atomically(folder / _UNFINISHED.format(table), f"{first} {end}".encode())


def forget_unfinished(folder: Path, table: str) -> None:
    """Remove the note, if there is one."""
    with contextlib.suppress(OSError):
        (folder / _UNFINISHED.format(table)).unlink(missing_ok=True)


def unfinished(folder: Path, table: str) -> tuple[int, int] | None:
    """Return the range that was being written into several tables when the writer ended; `None` if there is none."""
    words = read_line(folder / _UNFINISHED.format(table)).split()
    numbers = [number_in(word) for word in words]
    return (numbers[0] or 0, numbers[1] or 0) if len(numbers) == 2 and None not in numbers else None


def synchronize(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NOT_SYNCHRONIZED:
            raise
    finally:
        os.close(fd)

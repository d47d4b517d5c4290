"""Copies of backlogs, in the run directory: `undelivered/<host>/`.

The part of a machine may be where other machines cannot see it, or where the end of a job removes it. Its backlog is
then copied into the run directory: the end of the outbox, the cursors, and the unread records.

A copy is valid only with its index, which is written last and atomically, and lists the bytes of each file. Each copy
has a number, and the part keeps the number of the last copy that it made. A copy with a larger number was delivered
elsewhere meanwhile: the part then continues from the copy, so that nothing is sent twice.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import msgspec

from otel_rl.delivery.outbox import identity
from otel_rl.delivery.signs import alive
from otel_rl.journal.atomic_files import read_checked, read_number, write_atomically, write_checked
from otel_rl.journal.modes import make_directory, open_file
from otel_rl.journal.segments import segment_numbers
from otel_rl.setup.directory import UNDELIVERED
from otel_rl.setup.parts import CURSORS, JOURNALS, OUTBOX, OWNER, Machine

if TYPE_CHECKING:
    from pathlib import Path

_INDEX, _NUMBER = "index", "copied"

BLOCK_BYTES = 1 << 20
SMALL_FILES = ("run.json", OWNER, "agent.json")


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """The range of bytes of a file that belongs to a copy; earlier bytes are not needed."""

    first: int
    end: int


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """The index of a copy; files are named by their path in the part."""

    name: str  # of the part
    number: int  # of the copy
    outbox: str  # identity of the outbox
    place: str  # the directory of the part, on its machine
    waiting: dict[str, int]  # number of items that each exporter has not got
    unread: int  # bytes of journals that no agent has read
    is_delivered: bool  # whether everything was delivered, and all processes had ended
    is_last: bool  # whether all processes of the machine had ended: nothing more was recorded
    files: dict[str, Extent]  # ranges of large files
    contents: dict[str, bytes]  # contents of small files
    directories: list[str]  # names of the journals
    machine: Machine | None = None  # of the part


def place_of(run: Path, name: str) -> Path:
    """Return the directory of the copy of a part."""
    return run / UNDELIVERED / name


def read(run: Path, name: str) -> Copy | None:
    """Return the copy of a part; `None` if there is no complete one."""
    place = place_of(run, name)
    copy = read_checked(place / _INDEX, Copy)
    if copy is None:
        return None
    files = (*copy.files, *copy.contents, *(f"{JOURNALS}/{journal}" for journal in copy.directories))
    with contextlib.suppress(OSError):
        is_whole = all(map(_is_of_part, files)) and all(
            (place / file).stat().st_size >= extent.end for file, extent in copy.files.items()
        )
        return msgspec.structs.replace(copy, name=name) if is_whole else None  # it may have been set aside
    return None


def write(run: Path, copy: Copy) -> None:
    """Write the index of a copy, which makes the copy valid.

    Raises:
        OSError: It cannot be written.
    """
    write_checked(place_of(run, copy.name) / _INDEX, copy)


def remove(run: Path, name: str) -> None:
    """Remove the copy of a part."""
    with contextlib.suppress(OSError):
        (place_of(run, name) / _INDEX).unlink()  # first: the files without the index are not a copy
    shutil.rmtree(place_of(run, name), ignore_errors=True)


def names(run: Path) -> list[str]:
    """Return the names of the parts that have a copy."""
    try:
        return sorted(path.name for path in (run / UNDELIVERED).iterdir() if read(run, path.name) is not None)
    except OSError:
        return []


def number_of(part: Path) -> int:
    """Return the number of the last copy that a part has made or continued from; 0 if there is none."""
    return read_number(part / _NUMBER)


def next_number(part: Path) -> int:
    """Return the number of the next copy of a part, and record it in the part.

    Raises:
        OSError: It cannot be written.
    """
    number = number_of(part) + 1
    write_atomically(part / _NUMBER, str(number).encode())
    return number


def restore(run: Path, copy: Copy, part: Path, *, journals: bool = True, manifest: bool = False) -> None:
    """Restore a copy into a part, so that an agent continues from it.

    Without `journals`, those of the part stay: the original part has them, and possibly more. With `manifest`, the
    other files that describe the part are restored too.

    Raises:
        OSError: It cannot be restored.
    """
    place = place_of(run, copy.name)
    for folder in (OUTBOX, CURSORS, JOURNALS):
        make_directory(part / folder)
    for old in (*(part / OUTBOX).glob("*.seg"), *(part / CURSORS).glob("*.json")):
        old.unlink()
    for journal in copy.directories if journals else ():
        make_directory(part / JOURNALS / journal)
    for file, content in copy.contents.items():
        if file.startswith((OUTBOX, CURSORS)) or (journals if file.startswith(JOURNALS) else manifest):
            make_directory((part / file).parent)
            write_atomically(part / file, content)
    for file, extent in copy.files.items():
        if journals or file.startswith(OUTBOX):
            make_directory((part / file).parent)
            opened = open(part / file, "wb", opener=open_file)  # noqa: SIM115
            with (place / file).open("rb") as source, opened as target:
                source.seek(extent.first)
                target.seek(extent.first)
                left = extent.end - extent.first
                while left and (block := source.read(min(BLOCK_BYTES, left))):
                    left -= target.write(block)
    write_atomically(part / _NUMBER, str(copy.number).encode())


def catch_up(run: Path, name: str, part: Path) -> bool:
    """Continue from the copy of a part if another machine has delivered from it, or the part was removed.

    Return whether the copy was restored.

    Raises:
        OSError: It cannot be read now.
    """
    copy = read(run, name)
    if copy is None:
        return False
    if copy.outbox == identity(part / OUTBOX):
        if copy.number <= number_of(part):
            return False
        restore(run, copy, part, journals=False)
    elif copy.is_delivered:
        return False
    elif segment_numbers(part / OUTBOX):  # the copy of a removed part whose name another part has taken since
        alive(place_of(run, name)).remove()
        place_of(run, name).rename(place_of(run, f"{name}.{copy.outbox}"))
        return False
    else:
        restore(run, copy, part)
    return True


def _is_of_part(file: str) -> bool:
    """Return whether a path is one of a part's files: the index, which others may write, must not name other files."""
    folder, *rest = file.split("/")
    if not rest:
        return folder in SMALL_FILES
    return folder in (OUTBOX, CURSORS, JOURNALS) and not any(one in ("", ".", "..") or "\0" in one for one in rest)

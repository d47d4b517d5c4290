"""How much was written into the folder of a machine, and for which run: `written.json`, next to the tables.

A run draws a random id for each folder, which is in the note of each file. A file that states another one was put there
by somebody, and is none of its run. The number of items is for the end of a table: nothing else says that its last file
is missing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import msgspec

from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.notes import RUN_NOTE, note_in
from otel_rl.recorder.archive.tables import TABLES
from otel_rl.recorder.files.atomic_files import read_shown_json, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.archive.files import File

_FILE = "written.json"
_known: dict[Path, str] = {}
"""The run of each folder whose files were checked."""
_Number = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]


class FolderItems(msgspec.Struct, frozen=True):
    """The run of a folder, and the number after the last item of each table."""

    run: str = ""
    items: dict[str, _Number] = {}


def read(place: Path) -> FolderItems:
    """Return what the file says; nothing if it is missing, damaged, or of a writer of an earlier version."""
    return read_shown_json(place / _FILE, FolderItems, place) or FolderItems()


def write(place: Path, written: FolderItems) -> None:
    """Replace the file, after the items are in files.

    Raises:
        OSError: It cannot be written now.
    """
    write_atomically(place / _FILE, msgspec.json.encode(written))


def run_of(place: Path) -> str:
    """Return the run that most files of a folder state; empty if none does.

    No single file decides: any of them can be one of another run.
    """
    listed = (file for table in TABLES for file in files.every(place, table.name))
    votes = Counter(filter(None, [read(place).run, *map(_stated, listed)]))
    return max(votes, key=votes.__getitem__, default="")


def items_of(place: Path) -> dict[str, int]:
    """Return the number of items of each table that were written; none if another run is meant."""
    written = read(place)
    return written.items if written.items and written.run == run_of(place) else {}


def is_foreign(file: File) -> bool:
    """Return whether a file states another run than the others of its folder."""
    folder = file.path.parent.parent
    place = folder.parent if folder.name == files.TAIL else folder
    stated = _stated(file)
    if stated and stated != _known.get(place):
        _known[place] = stated if stated == read(place).run else run_of(place)
    return bool(stated) and stated != _known[place]


def _stated(file: File) -> str:
    try:
        return note_in(file.path, RUN_NOTE)
    except OSError:  # it was deleted meanwhile, or is a link: who reads it says so
        return ""

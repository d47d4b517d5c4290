"""Which run directories are below others: looked for again only where something has changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.archive.runs import is_run_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class _Folder(NamedTuple):
    """A directory as it was at the last look."""

    changed_ns: int
    is_run: bool
    folders: tuple[Path, ...]


class RunTree:
    """The run directories at or below directories; run directories do not nest, and links lead nowhere.

    A directory that has changed is listed again. For all others, one `stat` is enough: with 10,000 runs a walk takes
    seconds.
    """

    def __init__(self, tops: Iterable[Path]) -> None:
        self._tops = tuple(dict.fromkeys(top.absolute() for top in tops))
        self._known: dict[Path, _Folder] = {}

    def look(self) -> dict[Path, Path]:
        """Return the run directories of now, each with the one of the given directories that it is in."""
        known, self._known = self._known, {}
        return {run: top for top in self._tops for run in self._below(top, known, is_top=True)}

    def _below(self, place: Path, known: dict[Path, _Folder], *, is_top: bool = False) -> Iterator[Path]:
        if place in self._known:  # one of the given directories is in another one
            return
        try:
            status = place.stat(follow_symlinks=is_top)
            if not stat.S_ISDIR(status.st_mode):
                return
            folder = known.get(place)
            if folder is None or folder.changed_ns != status.st_mtime_ns:
                folder = _folder(place, status.st_mtime_ns)
        except OSError:  # it was removed meanwhile, or is not for this user
            return
        self._known[place] = folder
        if folder.is_run:
            yield place
        for below in folder.folders:
            yield from self._below(below, known)


def _folder(place: Path, changed_ns: int) -> _Folder:
    if is_run_directory(place):
        return _Folder(changed_ns, is_run=True, folders=())
    with os.scandir(place) as entries:
        folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return _Folder(changed_ns, is_run=False, folders=tuple(map(Path, folders)))

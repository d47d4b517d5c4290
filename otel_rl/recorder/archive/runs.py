"""Run directories: which run each is, and where they are below others."""

from __future__ import annotations

import contextlib
import glob
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.files import MACHINE_FILE, ROWS_FILE
from otel_rl.recorder.archive.marks import Marks, marks_of
from otel_rl.recorder.archive.tables import TABLES
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import read_shown_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MANIFEST = "run.json"
NEWEST = "newest"
"""The name of the run that was created or resumed last."""
_warnings = Occasional(log_of("otel_rl"))
_SIGNS = (MANIFEST, ARCHIVE, ROWS_FILE, MACHINE_FILE)


class _Manifest(msgspec.Struct):
    """What `run.json` says of the run."""

    id: str = ""
    project: str = ""
    name: str = ""


class Place(NamedTuple):
    """A run directory."""

    path: Path  # where it is
    id: str  # the id of the run; empty if it is unknown
    project: str  # the project; if it is unknown, the name of the directory above
    name: str  # the name that somebody gave it, or that it began with, or that of the directory
    first_name: str  # the name that it began with; empty if it is unknown
    marks: Marks  # its marks


def place_of(path: str | os.PathLike[str]) -> Place:
    """Return a run directory.

    Raises:
        FileNotFoundError: It is none.
    """
    directory = Path(path).absolute()  # the reader stays valid when the working directory changes
    if not is_run_directory(directory):
        raise FileNotFoundError(f"{directory} is not a run directory: it has none of {', '.join(_SIGNS)}")
    manifest = read_shown_json(directory / MANIFEST, _Manifest, directory) or _Manifest()
    real, marks = directory.resolve(), marks_of(directory)
    name = marks.name or manifest.name or real.name
    return Place(directory, manifest.id, manifest.project or real.parent.name, name, manifest.name, marks)


def places_of(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Place]:
    """Return the run directories at paths or below them; a path can be a glob.

    Raises:
        FileNotFoundError: There is none at one of them.
    """
    patterns = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    places: dict[Path, Place] = {}
    for pattern in map(str, patterns):
        tops = [pattern] if Path(pattern).exists() else glob.glob(pattern.removesuffix("**") or ".")  # noqa: PTH207
        runs = [directory for top in sorted(tops) for directory in _below(Path(top))]
        if not runs:
            raise FileNotFoundError(f"no run directory at {pattern}")
        for directory in runs:  # a link such as `latest` leads to a run that is there under its own path
            real = directory.resolve()
            if real not in places or not directory.is_symlink():
                places[real] = place_of(directory)
    if not places:
        raise FileNotFoundError("no run directory is named")
    return list(places.values())


def directory_of(name: str, parent: Path, *, exact: bool = False) -> Path | str:
    """Return the directory of a run, or why there is none; of several runs of a directory or a name, the newest one.

    Args:
        name: A run directory or a directory of runs, or the id or the name of a run, or `NEWEST`.
        parent: The directory in which runs are looked for by id and name.
        exact: If true, several runs are a reason against it.
    """
    place = Path(name)
    try:
        if place.is_dir() and exact:
            return place.absolute() if is_run_directory(place) else f"{name} is not a run directory; name one run"
        if place.is_dir():
            return _newest(_own_first(_runs_below(place))) or place  # the reader says what such a directory lacks
        runs = _runs_below(parent)
    except (OSError, ValueError) as error:  # a name with a null byte
        return f"{name}: {error}"
    of_id = [run for run in runs if run.id == name]
    same = of_id or [run for run in runs if run.name == name] or [run for run in runs if run.first_name == name]
    same = same if exact else _own_first(same)
    if len(same) > 1 and (of_id or exact):
        places = ", ".join(sorted(str(run.path) for run in same))
        kind = "id" if of_id else "name"
        return f"{name} is the {kind} of {len(same)} runs; give one of the directories: {places}"
    newest = _newest(_own_first(runs) if name == NEWEST else same)
    if newest is None and name == NEWEST:
        return f"no run in {parent}; record one with: otel-rl demo, or: otel-rl run -- COMMAND"
    return newest or f"{name} is not a directory, and no run in {parent} has this id or name; to see them: otel-rl ls"


def in_projects(runs: Path) -> list[Path]:
    """Return what is in the directories of a directory, as far as it can be listed: runs, if it holds projects."""
    return [run for project in _entries(runs) for run in _entries(project)]


def labels_of(places: Sequence[Place]) -> list[str]:
    """Return a label for each run that no other run has: its id, with its project or its path if needed."""
    short = [place.id or place.path.name for place in places]
    longer = [f"{place.project}/{label}" for place, label in zip(places, short, strict=True)]
    paths = [str(place.path) for place in places]
    count, long_count = Counter(short), Counter(longer)
    return [
        label if count[label] == 1 else long_label if long_count[long_label] == 1 else path
        for label, long_label, path in zip(short, longer, paths, strict=True)
    ]


def _below(top: Path) -> Iterator[Path]:
    """Yield the run directories in a directory, or the directory itself; run directories do not nest."""
    if is_run_directory(top):
        yield top
        return
    for path, folders, _ in os.walk(top):
        for folder in sorted(folders):
            if is_run_directory(directory := Path(path, folder)):
                folders.remove(folder)
                yield directory


def _runs_below(directory: Path) -> list[Place]:
    try:
        return places_of(directory)
    except FileNotFoundError:
        return []


def _own_first(runs: list[Place]) -> list[Place]:
    """Return the runs of this user, or all if there is none: anybody can name a run as another one is named."""
    return [run for run in runs if _owner_of(run.path) == os.geteuid()] or runs


def _owner_of(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1


def _newest(runs: Sequence[Place]) -> Path | None:
    """Return the directory of the run that was created or resumed last."""
    begun: dict[Path, float] = {}
    for run in runs:
        with contextlib.suppress(OSError):  # it was removed meanwhile, or has rows alone
            begun[run.path] = (run.path / MANIFEST).stat().st_mtime
    return max((run.path for run in runs), key=lambda path: begun.get(path, 0.0), default=None)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def is_run_directory(directory: Path) -> bool:
    """Return whether a directory is that of a run."""
    return any(os.path.exists(directory / sign) for sign in _SIGNS)  # noqa: PTH110 - false for what cannot be examined


def machines(archive: Path) -> list[str]:
    """Return the folders of an archive that have files of tables, and not only `now.json` or a draft on a full disk.

    Folders that are links, or have some in them, are left out: an archive of somebody else could lead anywhere. Of a
    folder and its copy, as a file manager or a synchronization leaves it, the one with more is returned.
    """
    if archive.is_symlink():
        _warnings.warn(f"{archive} is a link; it is not read")
        return []
    names = sorted(os.listdir(archive)) if archive.is_dir() else []  # noqa: PTH208
    with_files = [name for name in names if _is_text(archive, name) and _has_files(archive / name)]
    return _without_copies(archive, with_files) if len(with_files) > 1 else with_files


def _without_copies(archive: Path, names: list[str]) -> list[str]:
    kept: dict[str, set[tuple[str, int, int, str]]] = {}
    have = {name: _files_of(archive / name) for name in names}
    for name in sorted(names, key=lambda name: -sum(end for _, _, end, _ in have[name])):
        if copied := next((other for other in kept if kept[other] & have[name]), None):
            _warnings.warn(f"{archive / name} is a copy of {archive / copied}; it is not read")
        else:
            kept[name] = have[name]
    return sorted(kept)


def _files_of(place: Path) -> set[tuple[str, int, int, str]]:
    """Return the files whose lines name the machine, by ranges and checksums: no other machine has such ones."""
    return {
        (table.name, *file[:3])
        for table in TABLES
        if any(column.name == "host" for column in table.columns)
        for folder in (place, place / files.TAIL)
        for file in files.listed(folder / table.name)
    }


def _is_text(archive: Path, name: str) -> bool:
    """Return whether a name is text: tables have it in a column."""
    is_text = not any("\ud800" <= character <= "\udfff" for character in name)
    if not is_text:
        _warnings.warn(f"{archive} has a folder whose name is not UTF-8; it is not read")
    return is_text


def _has_files(place: Path) -> bool:
    parts = [place, place / files.TAIL, *(place / tail / table.name for tail in ("", files.TAIL) for table in TABLES)]
    if link := next((part for part in parts if part.is_symlink()), None):
        _warnings.warn(f"{link} is a link; {place} is not read")
        return False
    return any(files.listed(part) for part in parts[2:])

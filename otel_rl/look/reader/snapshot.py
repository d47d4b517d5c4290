"""The intact files of an archive at one time, listed once for each query."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.reader.plain_paths import plain
from otel_rl.look.reader.schema import faults_of, lines_in_range
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.notes import steps_in
from otel_rl.recorder.archive.tables import MESSAGES, ROWS, SQL, STEPS
from otel_rl.recorder.archive.written import read as read_written
from otel_rl.recorder.archive.written import run_of
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_rl.recorder.archive.files import File
    from otel_rl.recorder.archive.tables import ArchiveTable

logger = log_of(__name__)
_TRIES = 3
_ANY_STEP = range(1 << 63)
FileKey = tuple["Path", int, int, int]
"""Path, inode, size and time of change of a file."""
_checked: dict[FileKey, bool] = {}
"""Whether a file is intact, so that it is read once per process."""
_with_bad_lines: set[FileKey] = set()
"""The files with lines that are left out, as their integers are out of range."""


class Hole(NamedTuple):
    """Items of a table that no intact file has: from `first` up to, but without, `end`."""

    machine: str
    """The folder of the machine in the archive."""
    table: str
    """Name of the table."""
    first: int
    """Number of the first item, counted from the start of the run."""
    end: int
    """Number after the last item."""


class Folder(NamedTuple):
    """The folder of a machine in the archive of a run, and the number of the run."""

    origin: int
    machine: str
    path: Path


class _Intact(NamedTuple):
    """The files that together have the items of a table once: those to be read, and what is missing."""

    files: list[File]
    damaged: list[Path]
    holes: list[tuple[int, int]]
    has_bad_lines: bool


class Snapshot:
    """The files of all runs, each table as it is when it is first asked for.

    Its methods raise `OSError` if a file was deleted in the meantime, or cannot be read: make another one.

    Args:
        folders: The folders of the machines.
        steps: The steps whose messages are wanted; all by default. The other files, which are large, are not read.
    """

    def __init__(self, folders: Sequence[Folder], steps: Sequence[range] | None = None) -> None:
        self._folders, self._steps = folders, steps
        self._found: dict[ArchiveTable, list[tuple[Folder, _Intact]]] = {}

    def damaged(self, table: ArchiveTable) -> list[Path]:
        """Return the damaged files of a table."""
        return [path for _, intact in self._intact(table) for path in intact.damaged]

    def holes(self, table: ArchiveTable) -> list[Hole]:
        """Return the ranges that no intact file of a table has."""
        return [
            Hole(folder.machine, table.name, first, end)
            for folder, intact in self._intact(table)
            for first, end in intact.holes
        ]

    def steps_of_messages(self) -> list[range]:
        """Return the steps of each file of messages, from the first to the last; a file without a note may have any."""
        listed = (file for folder in self._folders for file in files.covering(listed_of(folder.path, MESSAGES)))
        return [_steps_in(file) for file in listed]

    def lines(self, table: ArchiveTable) -> str:
        """Return the query for all lines of a table, with the number of the run in `origin`.

        The files are listed in it: a glob would see a line twice while files are merged.
        """
        types = ", ".join(f"NULL::{SQL[column.kind]} AS {column.name}" for column in table.columns)
        query = f"SELECT {types}, NULL::VARCHAR AS machine, NULL::INTEGER AS origin WHERE false"
        chosen = [(folder, file) for folder, intact in self._intact(table) for file in intact.files]
        if chosen:
            paths, names = (
                ", ".join(literal(text) for text in texts)
                for texts in ([plain(file.path) for _, file in chosen], [folder.machine for folder, _ in chosen])
            )
            origins = ", ".join(str(folder.origin) for folder, _ in chosen)
            number = "[(file_index + 1)::BIGINT]"
            # By its default, DuckDB takes a folder in the path, such as a run directory `step=9`, for the column `step`
            # of all lines (test_a_run_directory_that_looks_like_a_partition).
            query += (
                f" UNION ALL BY NAME SELECT *, [{names}]{number} AS machine, [{origins}]{number} AS origin"
                f" FROM read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
            )
        columns = ", ".join(column.name for column in table.columns)
        condition = lines_in_range(table) if any(intact.has_bad_lines for _, intact in self._intact(table)) else "true"
        return f"SELECT {columns}, machine, origin FROM ({query}) WHERE {condition}"

    @property
    def paths(self) -> list[Path]:
        """The intact files of the tables that were asked for."""
        return [file.path for folders in self._found.values() for _, intact in folders for file in intact.files]

    def _intact(self, table: ArchiveTable) -> list[tuple[Folder, _Intact]]:
        if table not in self._found:
            steps = self._steps if table.states_steps else None
            self._found[table] = [(folder, _intact(folder.path, table, steps)) for folder in self._folders]
        return self._found[table]


def _intact(place: Path, table: ArchiveTable, steps: Sequence[range] | None) -> _Intact:
    """Return the intact files of a table in the folder of a machine that may have some steps.

    Raises:
        OSError: A file was deleted in the meantime, or cannot be read: list again.
    """
    written = read_written(place)  # first: what it says is in files
    every = listed_of(place, table)
    if steps is not None:
        every = [file for file in every if _may_have(_steps_in(file), steps)]
    _look_at(table, files.covering(every))
    chosen, bad = intact.covering(every, partial(_is_intact, table))
    holes = files.holes(chosen)
    reached = chosen[-1].end if chosen else 0
    ends = [reached, *(file.end for file in bad)]
    if table in (ROWS, STEPS):  # their lines of `steps`, with the same ranges, are written after the values
        unfinished = [files.unfinished(folder, STEPS.name) for folder in (place, place / files.TAIL)]
        both = (file for other in (ROWS, STEPS) for file in files.every(place, other.name))
        ends += [file.end for file in both if file[:2] not in unfinished]
    end = max(ends)
    if (said := written.items.get(table.name, 0)) > end and written.run == run_of(place):
        end = said
    has_bad_lines = bool(_with_bad_lines) and any(file_key(file) in _with_bad_lines for file in chosen)
    holes += [(reached, end)] if end > reached else []
    return _Intact(chosen, [file.path for file in bad], holes, has_bad_lines)


def _steps_in(file: File) -> range:
    try:
        return steps_in(file.path) or _ANY_STEP
    except PermissionError:  # it, or a link in its place, is not read: it counts as damaged
        return _ANY_STEP


def _may_have(stated: range, steps: Sequence[range]) -> bool:
    return any(stated[0] <= asked[-1] and asked[0] <= stated[-1] for asked in steps)


def listed_of(place: Path, table: ArchiveTable) -> list[File]:
    """Return the files of a table, young ones first; of `rows`, the files whose lines of `steps` are written.

    The writer writes the values of rows before their lines of `steps`: without a line, nothing says which history a
    value is part of.
    """
    for _ in range(_TRIES):
        listed = files.every(place, table.name)
        if table is not ROWS:
            break
        complete = {file[:2] for file in files.every(place, STEPS.name)}
        listed = [file for file in listed if file[:2] in complete]
        if {file[:2] for file in files.covering(listed)} == {file[:2] for file in files.of_table(place, STEPS.name)}:
            break
    return listed


def _is_intact(table: ArchiveTable, file: File) -> bool:
    key = file_key(file)
    if key not in _checked:
        _look_at(table, [file])
    return _checked[key]


def _look_at(table: ArchiveTable, chosen: Sequence[File]) -> None:
    """Find out whether files are what was written, all of them together."""
    keys = {file: key for file in chosen if (key := file_key(file)) not in _checked}
    with ThreadPoolExecutor() as pool:  # neither reading nor a checksum holds the interpreter
        reasons = dict(zip(keys, pool.map(_change_of, keys), strict=True))
    faults = faults_of(table, [file.path for file, reason in reasons.items() if not reason])
    for file, reason in reasons.items():
        fault = faults.get(file.path)
        if fault and fault.is_of_lines:
            _with_bad_lines.add(keys[file])
            logger.warning("%s: %s; such lines are left out", file.path, fault.text)
        elif fault:
            reason = f"{file.path} is not a file of {table.name}: {fault.text}"  # noqa: PLW2901 - a checksum says less
        if reason:
            logger.warning("%s; it is left out", reason)
        _checked[keys[file]] = not reason


def file_key(file: File) -> FileKey:
    """Return what a file is known by.

    The time of change, which copies cannot set as they do that of modification: a file with another content is read
    again.
    """
    stat = file.path.lstat()
    return file.path, stat.st_ino, stat.st_size, stat.st_ctime_ns


def _change_of(file: File) -> str:
    """Return why a file is not the one that was written; empty if it is."""
    try:
        intact.check(file)
    except (intact.DamagedError, PermissionError) as error:
        return str(error)
    return ""

"""Writes items into the archive of a machine: young files every few seconds, sealed ones when there is enough."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from otel_rl.archive import files, thinning
from otel_rl.archive.columns import columns_of, from_parquet, lines_in, merged, to_parquet
from otel_rl.archive.lines import items_of
from otel_rl.archive.tables import (
    ATTEMPTS,
    ENDS,
    ENVIRONMENT,
    EVENTS,
    MEASUREMENTS,
    PARAMETERS,
    ROWS,
    SPANS,
    STEPS,
    TEXTS,
    TRAJECTORIES,
)
from otel_rl.errors.sinks import log_of
from otel_rl.export import (
    Ended,
    Environment,
    Event,
    Identities,
    Item,
    Machine,
    Params,
    Process,
    Row,
    Span,
    Trajectory,
    identity,
)
from otel_rl.export import Table as TextTable
from otel_rl.journal.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from arro3.core import RecordBatch

    from otel_rl.archive.files import File
    from otel_rl.archive.tables import Table

logger = log_of(__name__)
_SEALED_ITEMS = 1024
"""Items of a sealed file, such as rows of steps: enough for a file that compresses well, few enough for memory."""
_SEALED_SPANS = 16_384
_SEALED_LINES = 65_536
"""Lines after which a file is sealed in any case: sealing takes four times their memory, of 60 bytes each."""
_SLACK_NS = 3_600_000_000_000
"""Items are roughly in the order of their times: none is an hour older than those that were written before it."""


class Kind:
    """The items of one kind, which are numbered in the order in which they came.

    The files of all its tables have the same ranges. The last table of `tables` is written last, so that an item exists
    if it is there.
    """

    def __init__(self, place: Path, tables: tuple[Table, ...], sealed_items: int) -> None:
        self._place, self._tables, self._sealed_items = place, tables, sealed_items
        found = files.of_table(place, tables[-1].name)
        self._end = found[-1].end if found else 0
        self._delete_unfinished()
        self._open: list[dict[Table, RecordBatch]] = []  # the tail, to be sealed together
        self._first = self._end  # of the first open item
        self._continue(found)
        self._unsaved: list[Item] = []
        self._newest: Path | None = None
        self._older = found
        self._held: list[Identities] = []
        self._held_since = 1 << 63

    def add(self, item: Item) -> None:
        """Add an item behind the others."""
        self._unsaved.append(item)

    def holds(self, item: Item, time: int) -> bool:
        """Return whether an item was in a file when the archive was opened; older files are read as far as needed."""
        while self._older and time < self._held_since + _SLACK_NS:
            found = list(read(self._place, self._tables, self._older.pop()))
            self._held.append(Identities((*identity(one), time_of(one)) for one in found))
            self._held_since = min([self._held_since, *map(time_of, found)])
        one = (*identity(item), time)
        return any(one in held for held in self._held)

    def save(self, *, seals: bool = False) -> bool:
        """Write the items that are in no file yet; into a sealed file, if there are enough or `seals` is true.

        Return whether a file was sealed.

        Raises:
            OSError: A file cannot be written now.
        """
        end = self._end + len(self._unsaved)
        new = {table: columns_of(table, self._unsaved) for table in self._tables} if self._unsaved else {}
        every = [*self._open, new] if new else self._open
        lines = sum(batch.num_rows for one in every for batch in one.values())
        is_full = end - self._first >= self._sealed_items or lines >= _SEALED_LINES
        is_sealed = is_full or (seals and end > self._first)
        if is_sealed:
            whole = {table: merged(table, [one[table] for one in every]) for table in self._tables}
            self._write(self._place, self._first, whole)
            self._delete_tail(end)
            self._open, self._first = [], end
        elif new:
            self._write(self._place / files.TAIL, self._end, new)
            self._open.append(new)
        self._unsaved, self._end = [], end
        return is_sealed

    def is_in_place(self) -> bool:
        """Return whether the newest file is still there."""
        if self._newest is not None and self._newest.exists():
            return True
        found = files.of_table(self._place, self._tables[-1].name)  # it may have been thinned
        return not self._end or any(file.end == self._end for file in found)

    def _write(self, place: Path, first: int, batches: dict[Table, RecordBatch]) -> None:
        end = self._end + len(self._unsaved)
        try:
            for table, batch in batches.items():
                self._newest = files.write(place / table.name, first, end, to_parquet(batch))
        except OSError:
            self._delete_unfinished()
            raise

    def _delete_tail(self, end: int) -> None:
        for table in reversed(self._tables):
            for file in files.listed(self._place / files.TAIL / table.name):
                if file.end <= end:
                    file.path.unlink(missing_ok=True)

    def _delete_unfinished(self) -> None:
        """Delete files of items that are not in the last table: their writer was killed between two tables."""
        for table in self._tables[:-1]:
            for folder in (self._place, self._place / files.TAIL):
                complete = {one[:2] for one in files.listed(folder / self._tables[-1].name)}
                for file in files.listed(folder / table.name):
                    if file[:2] not in complete:
                        file.path.unlink(missing_ok=True)

    def _continue(self, found: list[File]) -> None:
        """Read the tail, to be sealed with the items that come; if some of it is damaged, seal it as it is."""
        sealed = files.listed(self._place / self._tables[-1].name)
        first = reached = sealed[-1].end if sealed else 0
        self._delete_tail(first)
        opened = []
        for file in (one for one in found if one.first >= first):
            if file.first != reached or (batches := self._batches(file)) is None:
                self._seal_as_it_is()
                return
            opened.append(batches)
            reached = file.end
        self._open, self._first = opened, first

    def _batches(self, file: File) -> dict[Table, RecordBatch] | None:
        try:
            return {
                table: from_parquet(table, files.read(_of_range(self._place, table, file))) for table in self._tables
            }
        except (OSError, ValueError) as error:
            logger.warning("%s", error)
            return None

    def _seal_as_it_is(self) -> None:
        """Move the intact files of the tail to the sealed ones; a hole is left of the others."""
        for table in self._tables:
            make_directory(self._place / table.name)
            for file in files.listed(self._place / files.TAIL / table.name):
                with suppress(files.DamagedError):
                    files.read(file)
                    file.path.rename(self._place / table.name / file.path.name)


def read(place: Path, tables: tuple[Table, ...], file: File) -> Iterator[Item]:
    """Yield the items of a range of files; none, with a warning, if one of them is damaged or gone."""
    try:
        lines = {table: lines_in(from_parquet(table, files.read(_of_range(place, table, file)))) for table in tables}
    except (OSError, ValueError) as error:
        logger.warning("%s", error)
        return
    yield from items_of(lines)


def _of_range(place: Path, table: Table, file: File) -> File:
    """Return the file of a table with the range of another one's.

    Raises:
        FileNotFoundError: There is none.
    """
    for one in files.of_table(place, table.name):
        if one[:2] == file[:2]:
            return one
    raise FileNotFoundError(f"{place}: {table.name} has no file {file.first:08d}-{file.end:08d}")


def time_of(item: Item) -> int:
    """Return the time of an item in Unix nanoseconds, by which items are roughly in order."""
    match item:
        case Span():
            return item.end_unix_nano
        case Process():
            return item.ended_unix_nano or item.started_unix_nano
        case _:
            return getattr(item, "time_unix_nano", 0)


KINDS: dict[type, tuple[tuple[Table, ...], int]] = {
    Row: ((ROWS, STEPS), _SEALED_ITEMS),
    Span: ((SPANS,), _SEALED_SPANS),
    Trajectory: ((TRAJECTORIES,), _SEALED_SPANS),
    Event: ((EVENTS,), _SEALED_ITEMS),
    Machine: ((MEASUREMENTS,), _SEALED_ITEMS),
    Params: ((PARAMETERS,), _SEALED_ITEMS),
    Process: ((ATTEMPTS,), _SEALED_ITEMS),
    Ended: ((ENDS,), _SEALED_ITEMS),
    Environment: ((ENVIRONMENT,), _SEALED_ITEMS),
    TextTable: ((TEXTS,), _SEALED_ITEMS),
}
"""The tables of each kind of item, and the number of items of a sealed file."""


class Writer:
    """Writes the items of a run into a folder, which need not exist.

    Args:
        place: The folder of a machine in the archive.
        limit_bytes: Size above which old spans are thinned.
    """

    def __init__(self, place: Path, limit_bytes: int) -> None:
        self._place, self._limit_bytes = place, limit_bytes
        self._kinds = {kind: Kind(place, *how) for kind, how in KINDS.items()}

    def holds(self, item: Item) -> bool:
        """Return whether the archive had an item when it was opened."""
        kind = self._kinds.get(type(item))
        return kind is not None and kind.holds(item, time_of(item))

    def add(self, item: Item) -> None:
        """Add an item; one of a kind that the archive does not have is ignored."""
        if (kind := self._kinds.get(type(item))) is not None:
            kind.add(item)

    def save(self, *, seals: bool = False) -> None:
        """Write everything that is in no file yet; with `seals`, into files that never change.

        Raises:
            OSError: A file cannot be written now; what is not written stays.
        """
        sealed = [kind.save(seals=seals) for kind in self._kinds.values()]
        if any(sealed):
            thinning.thin(self._place, self._limit_bytes)

    def is_in_place(self) -> bool:
        """Return whether the newest file of each kind is still there."""
        return all(kind.is_in_place() for kind in self._kinds.values())

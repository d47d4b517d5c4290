"""Writes items into the archive of a machine: young files every few seconds, sealed ones when there is enough."""

from __future__ import annotations

import secrets
from functools import cache
from typing import TYPE_CHECKING

from otel_rl.export import Identities, Item, Process, Span, identity
from otel_rl.recorder.archive import files, intact, written
from otel_rl.recorder.archive.columns import SEALED, YOUNG, columns_in, from_parquet, to_parquet
from otel_rl.recorder.archive.kept import kept
from otel_rl.recorder.archive.lines import items_of
from otel_rl.recorder.archive.notes import RUN_NOTE
from otel_rl.recorder.archive.tables import KINDS
from otel_rl.recorder.archive.thinning import Thinner
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_rl.recorder.archive.files import File
    from otel_rl.recorder.archive.tables import ArchiveTable

logger = log_of(__name__)
_SEALED_BYTES = 4 << 20
"""Memory of items after which a file is sealed in any case."""
_YOUNG = 32
"""Young files of about the same size that are merged: a run of slow steps writes a file for each."""
_SLACK_NS = 3_600_000_000_000
"""Items are roughly in the order of their times: none is an hour older than those that were written before it."""


class ItemFiles:
    """The items of one kind, which are numbered in the order in which they came.

    The files of all its tables have the same ranges. The last table of `tables` is written last, so that an item exists
    if it is there.

    Args:
        place: The folder of a machine.
        tables: The tables.
        run: The random id of the run, which the files state.
        before: The number of items that were written before, also of those whose files are gone.
    """

    def __init__(self, place: Path, tables: tuple[ArchiveTable, ...], run: str = "", before: int = 0) -> None:
        self._place, self._tables, self._sealed_items, self._run = place, tables, tables[-1].sealed_items, run
        self._delete_unfinished()
        older = files.of_table(place, tables[-1].name)
        # Of the other tables too: a program that copies directories may have lost a file of the last one, and the items
        # that come must not get the numbers of those that are left.
        ends = (file.end for table in tables for file in files.every(place, table.name))
        self._end = max([before, *ends])  # of the items in files
        self._keep_from(self._end)
        self._newest: Path | None = None
        self._older = older
        self._held: list[Identities] = []
        self._held_since = 1 << 63
        self._continue(older)
        there = files.of_table(place, tables[-1].name)
        self._end_when_opened = there[-1].end if there else 0  # of the last table, which may have lost its end

    @property
    def written(self) -> dict[str, int]:
        """The number after the last item in the files of each table."""
        return {table.name: self._end for table in self._tables} if self._end else {}

    def add(self, items: Sequence[Item]) -> None:
        """Add items behind the others."""
        for lines in self._kept.values():
            lines.add(items)
        self._next += len(items)

    def holds(self, item: Item, time: int) -> bool:
        """Return whether an item was in a file when the archive was opened; older files are read as far as needed."""
        while self._older and time < self._held_since + _SLACK_NS:
            items = read(self._place, self._tables, self._older.pop())
            self._held.append(Identities((*identity(known), time_of(known)) for known in items))
            self._held_since = min([self._held_since, *map(time_of, items)])
        return any((*identity(item), time) in held for held in self._held)

    def save(self, *, seals: bool = False) -> bool:
        """Write the items that are in no file yet; into a sealed file, if there are enough or `seals` is true.

        Return whether a file was sealed.

        Raises:
            OSError: A file cannot be written now.
        """
        end = self._next
        is_full = end - self._first >= self._sealed_items or self._size() >= _SEALED_BYTES
        if is_sealed := is_full or (seals and end > self._first):
            self._write(self._place, self._first, end, SEALED)
            # Only now: the sealed file is on disk, and a kill in between leaves both, of which readers take the longer
            # one (recorder/archive/test_writer.py).
            self._delete_tail(end)
            self._keep_from(end)
        elif end > self._end:
            self._write(self._place / files.TAIL, self._end, end, YOUNG)
            self._young.append((self._end, 0))
        self._end = end
        self._merge_young()
        return is_sealed

    def is_in_place(self) -> bool:
        """Return whether the newest file is still there."""
        if self._newest is not None and self._newest.exists():
            return True
        end = self._end_when_opened if self._newest is None else self._end
        newest = files.of_table(self._place, self._tables[-1].name)  # it may have been thinned
        return not end or any(file.end == end for file in newest)

    def _keep_from(self, first: int) -> None:
        """Forget the items in sealed files."""
        self._first = self._next = first
        self._kept = {table: kept(table) for table in self._tables}
        self._young: list[tuple[int, int]] = []  # first items of young files, and how often each was merged

    def _size(self) -> int:
        return sum(lines.size() for lines in self._kept.values())

    def _merge_young(self) -> None:
        """Merge the last young files, if there are enough of them that were merged equally often."""
        while len(self._young) >= _YOUNG and self._young[-_YOUNG][1] == self._young[-1][1]:
            first, merged = self._young[-_YOUNG]
            self._write(self._place / files.TAIL, first, self._end, YOUNG)
            self._delete_tail(self._end, first, keeps=(first, self._end))
            self._young[-_YOUNG:] = [(first, merged + 1)]

    def _write(self, place: Path, first: int, end: int, compression: str) -> None:
        """Write a range of the items that are kept; a note says which, until all tables have it."""
        try:
            if len(self._tables) > 1:
                make_directory(place)
                files.note_unfinished(place, self._tables[-1].name, first, end)
            for table, lines in self._kept.items():
                batches = lines.batches(first - self._first, end - self._first)
                data = to_parquet(table, batches, compression=compression, notes={RUN_NOTE: self._run})
                self._newest = files.write(place / table.name, first, end, data)
            files.forget_unfinished(place, self._tables[-1].name)
        except OSError:
            self._delete_unfinished()
            raise

    def _delete_tail(self, end: int, first: int = 0, *, keeps: tuple[int, int] | None = None) -> None:
        """Delete the young files of a range, whose items are in another one."""
        is_intact = cache(intact.is_intact)
        # The last table first, as an item exists if it is there.
        for table in reversed(self._tables):
            young = files.listed(self._place / files.TAIL / table.name)
            longer = [*files.listed(self._place / table.name), *(file for file in young if file[:2] == keeps)]
            for file in young:
                same = (other for other in longer if other.first <= file.first and file.end <= other.end)
                if first <= file.first and file.end <= end and file[:2] != keeps and any(map(is_intact, same)):
                    file.path.unlink(missing_ok=True)

    def _delete_unfinished(self) -> None:
        """Delete files of a range that its writer has noted, and not finished: it was killed between two tables.

        Any other file whose items are not in the last table stays: that table has lost a file.
        """
        last = self._tables[-1].name
        for folder in (self._place, self._place / files.TAIL):
            noted = files.unfinished(folder, last)
            if noted is not None and noted not in {file[:2] for file in files.listed(folder / last)}:
                for table in self._tables[:-1]:
                    for file in files.listed(folder / table.name):
                        if file[:2] == noted:
                            file.path.unlink(missing_ok=True)
            files.forget_unfinished(folder, last)

    def _continue(self, known: list[File]) -> None:
        """Read the tail, to seal it with the items that come; if a part of it is damaged, seal it as it is."""
        sealed = (file.end for table in self._tables for file in files.listed(self._place / table.name))
        first = reached = max(sealed, default=0)
        self._delete_tail(first)
        self._keep_from(first)
        for file in [file for file in known if file.first >= first]:
            items = read(self._place, self._tables, file)
            if file.first != reached or len(items) != file.end - file.first:
                self._seal_as_it_is()
                self._keep_from(self._end)
                return
            self.add(items)
            self._young.append((file.first, 0))
            reached = file.end
        if reached != self._end:  # the last table has lost its end
            self._seal_as_it_is()
            self._keep_from(self._end)

    def _seal_as_it_is(self) -> None:
        """Move the intact files of the tail to the sealed ones; damaged files leave a hole."""
        for table in self._tables:
            make_directory(self._place / table.name)
            young = files.listed(self._place / files.TAIL / table.name)
            for file in intact.covering(young)[0]:
                file.path.rename(self._place / table.name / file.path.name)


def read(place: Path, tables: tuple[ArchiveTable, ...], file: File) -> list[Item]:
    """Return the items of a range of files; none, with a warning, if one of them is damaged or gone."""
    try:
        columns = {table: columns_in(table, from_parquet(table, _of_range(place, table, file))) for table in tables}
        return [*items_of(columns)]
    except (OSError, TypeError, ArithmeticError, *UNDECODABLE) as error:
        logger.warning("%s: %s", file.path, error)
        return []


def _of_range(place: Path, table: ArchiveTable, file: File) -> bytes:
    """Return the content of the file of a table with the range of another one's.

    Raises:
        DamagedError: There is none that is intact.
    """
    same = [candidate for candidate in files.every(place, table.name) if candidate[:2] == file[:2]]
    chosen = same[0] if len(same) == 1 else next(filter(intact.is_intact, same), None)
    if chosen is None:
        raise intact.DamagedError(f"{place}: {table.name} has no intact file {file.first:08d}-{file.end:08d}")
    return intact.read(chosen)


def time_of(item: Item) -> int:
    """Return the time of an item in Unix nanoseconds, by which items are roughly in order."""
    match item:
        case Span():
            return item.end_unix_nano
        case Process():
            return item.ended_unix_nano or item.started_unix_nano
        case _:
            return getattr(item, "time_unix_nano", 0)


class ArchiveWriter:
    """Writes the items of a run into a folder, which need not exist.

    Args:
        place: The folder of a machine in the archive.
        limit_bytes: Size above which old spans are thinned.
    """

    def __init__(self, place: Path, limit_bytes: int) -> None:
        self._place = place
        self._run, before = written.run_of(place) or secrets.token_hex(16), written.items_of(place)
        self._thinner = Thinner(place, limit_bytes, self._run)
        self._kinds = {
            kind: ItemFiles(place, tables, self._run, max(before.get(table.name, 0) for table in tables))
            for kind, tables in KINDS.items()
        }
        self._noted: dict[str, int] = {}

    def holds(self, item: Item) -> bool:
        """Return whether the archive had an item when it was opened."""
        kind = self._kinds.get(type(item))
        return kind is not None and kind.holds(item, time_of(item))

    def add(self, *items: Item) -> None:
        """Add items of one kind; those of a kind that the archive does not have are ignored."""
        if items and (kind := self._kinds.get(type(items[0]))) is not None:
            kind.add(items)

    def save(self, *, seals: bool = False) -> bool:
        """Write everything that is in no file yet; with `seals`, into files that never change.

        Return whether a file was sealed, and much memory was freed.

        Raises:
            OSError: A file cannot be written now; what is not written stays.
        """
        sealed = [kind.save(seals=seals) for kind in self._kinds.values()]
        self._note_written()
        if is_sealed := any(sealed):
            self._thinner.thin()
        return is_sealed

    def _note_written(self) -> None:
        items = {table: end for kind in self._kinds.values() for table, end in kind.written.items()}
        if items and items != self._noted:
            written.write(self._place, written.FolderItems(self._run, items))
            self._noted = items

    def is_in_place(self) -> bool:
        """Return whether the newest file of each kind is still there."""
        return all(kind.is_in_place() for kind in self._kinds.values())

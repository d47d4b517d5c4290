"""An index of all items of a run, which recognizes repeated items.

A client without a response sends the same records again, possibly much later and in another order. The index is a file
next to the outbox. After a crash, missing entries are read from the outbox.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.export import Row
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.journal.segments import START, Position

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.export import Item
    from otel_rl.recorder.delivery.outbox import Outbox

logger = log_of(__name__)
_MOST_OTHERS = 1_000_000
"""The number of spans, events and tables that are remembered, about 20 bytes each; all rows are remembered."""
_PRUNE_EVERY = 100_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS row (
    attempt INTEGER, step INTEGER, part INTEGER, digest INTEGER, PRIMARY KEY (attempt, step, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS other (digest INTEGER PRIMARY KEY, number INTEGER);
CREATE TABLE IF NOT EXISTS covered (
    one INTEGER PRIMARY KEY, outbox TEXT, segment INTEGER, place INTEGER, number INTEGER
);
"""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class SeenItems:
    """The index of one run; the owner must hold a lock for each call.

    Raises:
        OSError: The index cannot be read or written now.
    """

    def __init__(self, path: Path, outbox: Outbox) -> None:
        self._path = path
        self._outbox = outbox
        self._behind = True
        self._number = 0
        self._file: sqlite3.Connection | None = None
        try:
            self.catch_up()
        except OSError:
            self.close()
            raise

    def fresh(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are not in the index; each row gets a part that is unique in its step.

        They are added to the index when `commit` is called.

        Raises:
            OSError: The index cannot be written now.
        """
        self.catch_up()
        try:
            return [new for item in items if (new := self._add(item)) is not None]
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        """Keep the items that `fresh` returned, after they were written to the outbox."""
        try:
            self._cover(self._outbox.end)
            self._open.commit()
        except sqlite3.Error as error:
            logger.warning("the index is incomplete and will be updated from the outbox: %s", self._failed(error))

    def rollback(self) -> None:
        """Drop the items that `fresh` returned, if they could not be written to the outbox."""
        self._open.rollback()

    def catch_up(self) -> None:
        """Add items of the outbox that are missing in the index, after a crash or a full disk.

        Raises:
            OSError: The index cannot be written now.
        """
        if not self._behind:
            return
        try:
            for _, batch in self._outbox.since(self._covered()):
                for item in batch.items:
                    self._add(item)
            self._cover(self._outbox.end)
            self._open.commit()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._behind = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            self._file = sqlite3.connect(self._path, timeout=1, check_same_thread=False)
            self._file.execute("PRAGMA locking_mode = EXCLUSIVE")  # network file systems lack shared memory
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")  # entries lost in a machine crash are in the outbox
            self._file.executescript(_SCHEMA)
        return self._file

    def _failed(self, error: sqlite3.Error) -> OSError:
        """Close the file, so that the next call opens it again; delete it if it is damaged."""
        self._behind = True
        self.close()  # rolls back
        # A full disk and a locked file are OperationalErrors, with a good file: only a damaged one is deleted.
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            logger.warning("%s is damaged and will be rebuilt from the outbox: %s", self._path, error)
            for end in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + end).unlink(missing_ok=True)
        return OSError(f"cannot use the index of items: {error}")

    def _add(self, item: Item) -> Item | None:
        if isinstance(item, Row):
            return self._add_row(item)
        self._number += 1
        added = self._open.execute("INSERT OR IGNORE INTO other VALUES (?, ?)", (_digest(item), self._number))
        if self._number % _PRUNE_EVERY == 0:
            self._open.execute("DELETE FROM other WHERE number <= ?", (self._number - _MOST_OTHERS,))
        return item if added.rowcount else None

    def _add_row(self, row: Row) -> Row | None:
        # Without the part, which was changed when the row came first: a repeat has its old one (bridge/test_runs.py).
        digest = _digest(replace(row, part=0))
        place = (row.attempt, row.step)
        rows = self._open.execute("SELECT part, digest FROM row WHERE attempt = ? AND step = ?", place)
        parts: dict[int, int] = dict(rows.fetchall())
        if digest in parts.values():
            return None
        # Values that are logged later for a step are another row: with an equal part, it would look like a repeat.
        part = row.part if row.part not in parts else max(parts) + 1
        self._open.execute("INSERT INTO row VALUES (?, ?, ?, ?)", (*place, part, digest))
        return replace(row, part=part)

    def _covered(self) -> Position:
        row = self._open.execute("SELECT outbox, segment, place, number FROM covered").fetchone()
        # Another outbox: its positions say nothing here, so the index is filled from its beginning.
        if row is None or row[0] != self._outbox.id:
            return START
        self._number = row[3]
        return Position(row[1], row[2])

    def _cover(self, position: Position) -> None:
        covered = (self._outbox.id, *position, self._number)
        self._open.execute("INSERT OR REPLACE INTO covered VALUES (1, ?, ?, ?, ?)", covered)


def _digest(item: Item) -> int:
    return int.from_bytes(blake2b(_encode(item), digest_size=8).digest(), "big", signed=True)

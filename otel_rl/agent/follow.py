"""Follows the journals of all ranks on this machine, those that appear later too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.agent.state import is_remote
from otel_rl.claim import is_held
from otel_rl.export import Recorded
from otel_rl.journal import START, Position, Reader
from otel_rl.record_events import Lost
from otel_rl.records import AnyRecord, Finished, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """A record, and the journal that it is from."""

    journal: str
    record: Record


class _Journal:
    def __init__(self, path: Path, position: Position) -> None:
        self.path = path
        # A process of another machine has no lock here; its own agent tells when it is over.
        self.remote = is_remote(path.name)
        kinds = AnyRecord | Lost if self.remote else AnyRecord
        self.reader: Reader[Record] = Reader(path, kinds, position)  # type: ignore[arg-type] # a union of types
        self.over = False
        self.alive_at = 0

    def read(self, limit: int, now: int) -> list[Record]:
        held = self.remote or is_held(self.path)  # asked before reading: what a living process wrote is then all there
        if held:
            self.alive_at = now
        records = self.reader.read(limit, final=not held)
        if records and isinstance(records[-1], Finished | Lost):
            self.over = True
        elif not held and not records:
            self.over = True
            records.append(Lost(self.alive_at))
        return records


class Follower:
    """Reads what is new in every journal.

    Args:
        journals: The directory that holds them.
        positions: Where to go on, by journal; the others are read from their beginning.
    """

    def __init__(self, journals: Path, positions: Mapping[str, Position]) -> None:
        self._path = journals
        self._positions = dict(positions)
        self._journals: dict[str, _Journal] = {}
        self._over: set[str] = set()

    @property
    def positions(self) -> dict[str, Position]:
        """Where reading goes on, by journal."""
        return self._positions | {name: journal.reader.position for name, journal in self._journals.items()}

    @property
    def alive(self) -> bool:
        """Whether a process that records lives, as far as the last look tells."""
        return any(not journal.over for journal in self._journals.values())

    @property
    def alive_here(self) -> bool:
        """The same of the processes of this machine: of another one that is switched off nothing is heard."""
        return any(not journal.over and not journal.remote for journal in self._journals.values())

    def ignore(self, journal: str) -> None:
        """Take a journal as read to its end: an earlier agent had done so."""
        self._over.add(journal)

    def look(self) -> bool:
        """Find new journals; tell whether there are any."""
        found = sorted(path for path in self._path.iterdir() if not path.name.startswith("."))
        fresh = [path for path in found if path.name not in self._journals and path.name not in self._over]
        for path in fresh:
            self._journals[path.name] = _Journal(path, self._positions.get(path.name, START))
        return bool(fresh)

    def read(self, limit: int, now: int) -> list[Found]:
        """Return what is new, at most `limit` records from each journal."""
        found: list[Found] = []
        for name, journal in self._journals.items():
            if not journal.over:
                skipped = journal.reader.skipped_bytes
                found.extend(Found(name, record) for record in journal.read(limit, now))
                if journal.reader.skipped_bytes > skipped:
                    logger.warning("%s: %d bytes so far were no record", name, journal.reader.skipped_bytes)
        return found

    def losses(self) -> dict[str, int]:
        """Return what could not be read, by reason, over all journals."""
        readers = [journal.reader for journal in self._journals.values()]
        return {
            "torn_bytes": sum(reader.skipped_bytes for reader in readers),
            "retention": sum(reader.lost_segments for reader in readers),
            "undecodable": sum(reader.undecodable for reader in readers),
        }


def forwarded(found: Iterable[Found], counts: dict[str, int]) -> list[Recorded]:
    """Return the records as items for the head, and count them."""
    encode = msgspec.msgpack.Encoder().encode
    of_journal: dict[str, list[bytes]] = {}
    for journal, record in found:
        of_journal.setdefault(journal, []).append(encode(record))
    items: list[Recorded] = []
    for journal, raw in of_journal.items():
        first = counts.get(journal, 0)
        counts[journal] = first + len(raw)
        items.append(Recorded(journal, first, tuple(raw)))
    return items

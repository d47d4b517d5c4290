"""Follows the journals of all ranks on this machine, including those that appear later."""

from __future__ import annotations

import os
import time
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.export import Recorded
from otel_rl.recorder.agent.input.followed import DOUBT_NS, FollowedJournal
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.journal.ending import end_by_exit, end_by_signal
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.segments import START, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from otel_rl.recorder.journal.reader import Reader
    from otel_rl.recorder.journal.records import Record

logger = log_of(__name__)
_OPEN_AT_ONCE = 128
RECORDS_AT_ONCE = 20_000
"""Records of all journals that one read returns, to bound memory. The next read continues with the other journals."""
_BYTES_AT_ONCE = 32 << 20
"""Bytes of these records, after which no other journal is read."""
_LARGEST_ITEM = 4 << 20
"""Bytes of records that are sent to the head as one item."""
_PROBES = 256
"""Quiet journals whose lock is checked in one read: 6 µs each."""
_LOOKS_AT_THE_DEAD = 4
"""Journals of dead processes that one read checks again."""
_SETTLED_NS = 2_000_000_000
"""A directory may change twice within one tick of the clock that its time of change is taken from."""


UNFINISHED = "unfinished_bytes"
"""Bytes of records that killed processes left half-written: the calls had not returned, so nothing is lost."""


class NewRecord(NamedTuple):
    """A record, and the journal that it is from."""

    journal: str
    record: Record


class Follower:
    """Reads what is new in every journal.

    Journals of processes that have ended need no descriptor and no check; the others share a limited number of
    descriptors. The journal of a process that died without a final record is checked again now and then: if it grows,
    the process is alive. `missing` are the journals that are empty, or that were removed before an agent had read them
    to their end.

    Args:
        journals: The directory that holds them.
        positions: Where to continue, by journal; the others are read from their beginning.
        final: If true, each process has one end, which waits for its exit status. Else the end that it expects at its
            exit comes at once, so that its last row does not wait, and the true one follows.
    """

    def __init__(self, journals: Path, positions: Mapping[str, Position], *, final: bool = False) -> None:
        self._path, self._final = journals, final
        self._positions = dict(positions)
        self._living: dict[str, FollowedJournal] = {}
        self._dead: OrderedDict[str, FollowedJournal] = OrderedDict()
        self._over: set[str] = set()
        self.missing: set[str] = set()
        self._quiet: set[str] = set()
        self._readers: OrderedDict[Path, Reader[Record]] = OrderedDict()
        self._queue: deque[str] = deque()
        self._changed = self._looked = self._bytes = 0
        self.has_more = False  # whether the last read stopped at a limit
        self._losses = {"torn_bytes": 0, "retention": 0, "undecodable": 0, UNFINISHED: 0}

    @property
    def positions(self) -> dict[str, Position]:
        """Where reading continues, by journal."""
        return self._positions | {name: journal.reader.position for name, journal in self._living.items()}

    @property
    def given_up(self) -> dict[str, Position]:
        """Where reading ended in journals of dead processes."""
        return {name: journal.reader.position for name, journal in self._dead.items()}

    @property
    def found_nothing(self) -> bool:
        """Whether it looked, and neither it nor an earlier agent ever found a journal."""
        return bool(self._looked) and not self._positions and not self._living

    @property
    def alive(self) -> bool:
        """Whether a process that records was alive at the last read."""
        return bool(self._living)

    @property
    def alive_here(self) -> bool:
        """Like `alive`, for local processes only: a machine that is powered off never reports its exit."""
        return any(not journal.remote for journal in self._living.values())

    def skip(self, journal: str, outcome: str = "", exit_code: int = 0) -> None:
        """Treat a journal as read to its end, as an earlier agent did, unless its exit status differs by now."""
        # Its exit status came after the end that was read, and only now says how the process ended
        # (faults/test_liveness.py).
        end = end_by_exit(self._path / journal)
        if end is not None and ((end.outcome, end.exit_code) != (outcome, exit_code) or is_held(self._path / journal)):
            return
        self._over.add(journal)
        if journal in self._positions:
            self._dead[journal] = FollowedJournal(self._path / journal, self._positions[journal])
            self._dead[journal].is_over = True

    def read_next(self, journals: Iterable[str]) -> None:
        """Read these journals of other machines at the next call of `read`, which skips the others."""
        for name in journals:
            self._quiet.discard(name)
            if name in self._dead:
                self._dead.move_to_end(name, last=False)

    def find_new(self) -> bool:
        """Find new journals; return whether there are any."""
        try:
            changed = self._path.stat().st_mtime_ns
            if changed == self._changed and self._looked - changed > _SETTLED_NS:
                return False
            self._looked = time.time_ns()
            names = sorted(entry.name for entry in os.scandir(self._path) if entry.is_dir())
        except FileNotFoundError:
            return False
        # Only at the first look: a journal that goes later has a reader, which notices it (faults/test_removed.py).
        if not self._changed:
            self.missing = {name for name in self._positions.keys() - self._over - set(names) if not is_remote(name)}
        names += sorted(self.missing)
        fresh = [name for name in names if name[0] != "." and name not in self._living and name not in self._over]
        for name in fresh:
            self._living[name] = FollowedJournal(self._path / name, self._positions.get(name, START))
            self._queue.append(name)
        self._changed = changed
        return bool(fresh)

    def read(self, limit: int, now: int) -> list[NewRecord]:
        """Return what is new, at most `limit` records from each journal; nothing if there is nothing in any."""
        new: list[NewRecord] = []
        self.has_more, self._bytes = False, 0
        probes, unprobed = _PROBES, 0
        for index in range(len(self._queue)):
            name = self._queue[0]
            self._queue.rotate(-1)
            if name in self._quiet:
                continue
            journal = self._living[name]
            records = self._read(journal, limit)
            if not records and (journal.finished or journal.remote or probes):
                probes -= not (journal.finished or journal.remote)
                records = self._read_end(journal, now)
            elif not records:
                unprobed = unprobed or index
            new += [NewRecord(name, record) for record in records]
            if len(new) > RECORDS_AT_ONCE or self._bytes > _BYTES_AT_ONCE:
                self.has_more = True
                break
        else:
            self._queue.rotate(-unprobed)  # the next look begins with those that this one did not get to
        self._queue = deque(name for name in self._queue if name in self._living)
        return new + self._read_the_dead(limit, now)

    def release_space(self) -> None:
        """Give the disk back that dead processes had reserved."""
        for journal in self._dead.values():
            if not journal.remote:
                journal.give_back()

    def losses(self) -> dict[str, int]:
        """Return what could not be read, by reason, over all journals."""
        return dict(self._losses)

    def _read(self, journal: FollowedJournal, limit: int, *, final: bool = False) -> list[Record]:
        reader = journal.reader
        before = reader.skipped_bytes, reader.lost_records, reader.undecodable, reader.unfinished_bytes
        records = journal.read(limit, final=final)
        self._bytes += reader.bytes_read
        self.has_more |= reader.has_more
        after = reader.skipped_bytes, reader.lost_records, reader.undecodable, reader.unfinished_bytes
        if after != before:
            for reason, old, new in zip(self._losses, before, after, strict=True):
                self._losses[reason] += new - old
            if after[0] > before[0]:
                logger.warning("%s: %d bytes so far were not a record", journal.path.name, after[0])
        self._readers.pop(journal.path, None)
        if reader.is_open:
            self._readers[journal.path] = reader
            if len(self._readers) > _OPEN_AT_ONCE:
                self._readers.popitem(last=False)[1].close()
        return records

    def _read_end(self, journal: FollowedJournal, now: int) -> list[Record]:
        """Return what is left of the journal if its process has ended, and look at it no longer."""
        if journal.remote and not journal.is_over:
            self._quiet.add(journal.path.name)
            return []
        if not journal.is_over:
            if not journal.is_dead(now):
                return self._read_exit(journal)
            # Read once more after the lock was found free: the process may have recorded between the last read and its
            # end (faults/test_liveness.py).
            if records := self._read(journal, RECORDS_AT_ONCE, final=True):
                return records
        end = None if journal.is_over else end_by_signal(journal.path) or end_by_exit(journal.path)
        is_unread = journal.reader.position == START and not journal.remote and not journal.is_over
        if is_unread:
            self.missing.add(journal.path.name)  # each has a segment before its process records
        journal.finished |= end is not None
        self._bury(journal)
        if journal.is_over:
            return []
        journal.is_over = True
        if is_unread and end is None and not journal.path.exists():
            return []  # counted; when and how its process ended is unknown
        return [end or Lost(journal.alive_at)]

    def _read_exit(self, journal: FollowedJournal) -> list[Record]:
        """Return the end that a living process expects, once and behind everything else, if it is at its exit."""
        if self._final or journal.remote or journal.is_ending:
            return []
        end = end_by_exit(journal.path)
        if end is None:
            return []
        # It may have recorded more between the read before and its exit: these records come before the end.
        if records := self._read(journal, RECORDS_AT_ONCE):
            return records
        journal.is_ending = True
        return [end]

    def _bury(self, journal: FollowedJournal) -> None:
        name = journal.path.name
        self._over.add(name)
        self._positions[name] = journal.reader.position
        self._readers.pop(journal.path, None)
        journal.reader.close()
        del self._living[name]
        if not journal.finished:
            self._dead[name] = journal

    def _read_the_dead(self, limit: int, now: int) -> list[NewRecord]:
        """Return new records of processes that counted as dead; each call checks a few of their journals."""
        new: list[NewRecord] = []
        for _ in range(min(_LOOKS_AT_THE_DEAD, len(self._dead))):
            name, journal = self._dead.popitem(last=False)
            journal.is_over = False
            records = self._read(journal, limit)
            if not records:
                journal.is_over = True
                self._readers.pop(journal.path, None)
                journal.reader.close()
                self._dead[name] = journal
                continue
            logger.warning("%s: its process counted as dead, but is alive", name)
            # Its lock may be gone, as after other code closed all descriptors: without this it would count as dead in
            # each turn.
            journal.trusted_until = now + DOUBT_NS
            self._over.discard(name)
            self.missing.discard(name)
            self._living[name] = journal
            self._queue.append(name)
            first = [] if isinstance(records[0], Revived) else [Revived(now)]
            new += [NewRecord(name, record) for record in (*first, *records)]
        return new


def forwarded(records: Iterable[NewRecord], counts: dict[str, int]) -> list[Recorded]:
    """Return the records as items for the head, and count them."""
    encode = msgspec.msgpack.Encoder().encode
    of_journal: dict[str, list[bytes]] = {}
    items: list[Recorded] = []

    def send(journal: str) -> None:
        raw = of_journal.pop(journal)
        first = counts.get(journal, 0)
        counts[journal] = first + len(raw)
        items.append(Recorded(journal, first, tuple(raw)))

    sizes = Counter[str]()
    for journal, record in records:
        encoded = encode(record)
        of_journal.setdefault(journal, []).append(encoded)
        sizes[journal] += len(encoded)
        if sizes[journal] > _LARGEST_ITEM:
            send(journal)
            sizes[journal] = 0
    for journal in list(of_journal):
        send(journal)
    return items

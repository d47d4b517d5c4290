"""The journal of one process, as the agent follows it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.locks import Lock, is_held
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import AnyRecord, Finished, Record
from otel_rl.recorder.journal.segments import segment_path

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.journal.segments import Position

logger = log_of(__name__)
DOUBT_NS = 60_000_000_000
"""Time after which a process whose journal was removed counts as dead; a process revived by mistake, likewise."""


class FollowedJournal:
    """The journal of one process.

    Attributes:
        remote: If true, its process is on another machine and has no lock here; its own agent reports its end.
        finished: If true, its process wrote a final record.
        is_ending: If true, its process is exiting, and the end that it expects was returned.
        is_over: If true, its process is known to have ended.
        alive_at: When its process was last seen alive, in Unix nanoseconds; 0 if never.
        trusted_until: Until then its process counts as alive even without its lock.
    """

    def __init__(self, path: Path, position: Position) -> None:
        self.path = path
        self.remote = is_remote(path.name)
        kinds = AnyRecord | Lost | Revived if self.remote else AnyRecord
        self.reader: Reader[Record] = Reader(path, kinds, position)  # type: ignore[arg-type] # a union of types
        self.finished = self.is_ending = self.is_over = self._is_unreadable = False
        self.alive_at = self.trusted_until = 0

    def read(self, limit: int, *, final: bool) -> list[Record]:
        """Return new records; none while the journal cannot be read."""
        try:
            records = self.reader.read(limit, final=final)
        except OSError as error:
            if not self._is_unreadable:
                logger.warning("%s cannot be read, retrying: %s", self.path.name, error)
            self._is_unreadable = True
            return []
        for record in records:
            if isinstance(record, Finished | Lost | Revived):
                self.finished = isinstance(record, Finished)
                self.is_over = not isinstance(record, Revived)
        self._is_unreadable = False
        return records

    def is_dead(self, now: int) -> bool:
        """Return whether its process died.

        A process that lives makes its directory again if somebody removed it, at its next call.
        """
        if self.alive_at and not self.path.is_dir():
            return now >= self.alive_at + DOUBT_NS
        try:
            lives = is_held(self.path) or now < self.trusted_until
        except OSError:  # too many open files, say
            lives = True
        if lives:
            self.alive_at = now
        return not lives

    def give_back(self) -> None:
        """Return the disk space that a dead process had reserved behind its last record; not behind half a record.

        The holder of the journal's lock knows that no process has the journal mapped.
        """
        end = self.reader.position
        with contextlib.suppress(OSError):
            # Locked first: truncating what a living process has mapped ends it with SIGBUS (journal/writer.py).
            lock = Lock(self.path, patience=0)
            try:
                with segment_path(self.path, end.segment).open("r+b") as file:
                    file.seek(end.offset)
                    if not file.read().strip(b"\0"):
                        file.truncate(end.offset)
            finally:
                lock.release()

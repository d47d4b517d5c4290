"""Removes items that all exporters have from the outbox, and their records from the journals.

An exporter needs everything after its cursor. If the outbox is lost, the agent makes it again from the journals, which
are kept from there on too. Everything else is removed, except a small tail of the outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.delivery.outbox import Outbox, positions_of, set_released_items
from otel_rl.recorder.delivery.outbox_reader import BatchHead, Located, located
from otel_rl.recorder.delivery.progress import Cursor
from otel_rl.recorder.files.atomic_files import read_json
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.segments import (
    START,
    Position,
    Released,
    released,
    segment_numbers,
    segment_path,
    set_released,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


TAIL_BYTES = 16 << 20
"""Bytes of the outbox that are kept after delivery, for the analysis of runs that have ended."""
_SPARE_BATCHES = 8
"""Batches before the first needed one whose journals are kept: the next agent continues from one that is intact."""


class Release:
    """Removes segments of an outbox, and of the journals that it was made from, if there are any.

    The cursors are those of all readers, in this process and in others.
    """

    def __init__(self, outbox: Outbox, cursors: Path, journals: Path | None, tail_bytes: int = TAIL_BYTES) -> None:
        self._outbox, self._cursors, self._journals = outbox, cursors, journals
        self._tail_bytes = tail_bytes
        self._done = START

    def look(self, expected: Iterable[str] = ()) -> None:
        """Remove what is not needed any more; the argument is that of `needed`.

        Raises:
            OSError: Something cannot be read or removed now.
        """
        needed = self.needed(expected)
        if needed == self._done:
            return
        self._done = needed
        before = self._before(needed)
        if not before:
            return
        if self._journals is not None:
            raw = before[max(0, len(before) - 1 - _SPARE_BATCHES)].batch.checkpoint
            for name, position in positions_of(bytes(raw)).items():
                self._release_journal(self._journals / name, position)
        self._release_outbox(before[0].end.segment)

    def needed(self, expected: Iterable[str]) -> Position:
        """Return the place in the outbox before which nothing is needed.

        Args:
            expected: Files of the cursors that must exist: an exporter without one has got nothing yet.
        """
        files = {file.name for file in self._cursors.glob("*.json") if not file.name.startswith(".")}
        # A missing cursor is that of an exporter which has got nothing yet, or which a cleaner removed: everything is
        # kept (faults/test_removed.py).
        if not files >= set(expected):
            return START
        return min((self._cursor(self._cursors / name) for name in files), default=START)

    def _cursor(self, file: Path) -> Position:
        cursor = read_json(file, Cursor)
        return cursor.position if cursor is not None and cursor.outbox == self._outbox.id else START

    def _before(self, needed: Position) -> list[Located[BatchHead]]:
        """Return the intact batches before a place in its segment and in the segment before, in order."""
        numbers = [number for number in segment_numbers(self._outbox.path) if number <= needed.segment]
        first = numbers[-2] if len(numbers) > 1 else needed.segment
        batches: list[Located[BatchHead]] = []
        for batch in located(self._outbox.path, BatchHead, Position(first, 0)):
            if batch.end > needed:
                break
            batches.append(batch)
        return batches

    def _release_outbox(self, first_needed: int) -> None:
        """Remove whole segments before one, the oldest first, as far as the tail allows."""
        path = self._outbox.path
        kept_bytes, first = 0, first_needed
        sizes = {number: segment_path(path, number).stat().st_size for number in segment_numbers(path)}
        for number in sorted((number for number in sizes if number < first_needed), reverse=True):
            kept_bytes += sizes[number]
            if kept_bytes > self._tail_bytes:
                break
            first = number
        if not any(number < first for number in sizes):
            return
        oldest = next(located(path, BatchHead, Position(first, 0)), None)
        if oldest is None:  # damaged
            return
        set_released_items(path, oldest.batch.before)
        # The oldest first: a gap in the middle would look like damage if the agent is killed between two of them.
        for number in sorted(number for number in sizes if number < first):
            segment_path(path, number).unlink(missing_ok=True)

    def _release_journal(self, path: Path, position: Position) -> None:
        numbers = [number for number in segment_numbers(path) if number < position.segment]
        if not numbers or not path.is_dir():
            return
        before = released(path)
        records = before.records + (_count(path, numbers[0], position.segment) if is_remote(path.name) else 0)
        set_released(path, Released(position.segment, records))
        for number in numbers:
            segment_path(path, number).unlink(missing_ok=True)


def cut_off(journals: Path, positions: Mapping[str, Position]) -> int:
    """Return the number of journals without records that an agent needs which continues from these positions.

    Records can be missing only if the checkpoint at the time of their removal was damaged or deleted since.
    """
    names = {path.name for path in journals.iterdir()} if journals.is_dir() else set()
    return sum(released(journals / name).first > positions.get(name, START).segment for name in names)


def _count(path: Path, first: int, end: int) -> int:
    """Return the number of records in some segments of a journal, from which the head knows the next index."""
    reader = Reader(path, msgspec.Raw, Position(first, 0))
    count = 0
    while batches := reader.read(1):
        if reader.position.segment >= end:
            break
        count += len(batches)
    reader.close()
    return count

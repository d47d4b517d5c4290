"""The reading end of an outbox: it returns items in order, and counts those that are missing.

Each batch has the number of items before it, so a reader notices what a flipped bit, a removed file or the limit of the
outbox took. It goes on behind the gap. An outbox of which nothing is left is made again, by the agent's next start.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from otel_rl.recorder.delivery.outbox import ItemPosition, OutboxBatch, released_items
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.segments import START, Position, payloads, segment_numbers

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.export import Item

T = TypeVar("T")
_UNKNOWN = -1


class OutboxView(Protocol):
    """An outbox as its readers see it."""

    path: Path
    end: Position  # as far as it is known
    count: int  # number of items up to `end`; 0 if it is unknown
    grown: threading.Condition  # notified when it has grown, or must be checked

    @property
    def id(self) -> str:
        """Return its identity."""


class BatchHead(msgspec.Struct, array_like=True):
    """A batch whose items are not decoded."""

    items: list[msgspec.Raw]
    checkpoint: msgspec.Raw
    before: int = 0

    @property
    def behind(self) -> int:
        """The number of items up to its end."""
        return self.before + len(self.items)


class Located(NamedTuple, Generic[T]):
    """An intact batch, and the place after it."""

    batch: T
    end: Position


def located(path: Path, kind: type[T], position: Position = START) -> Iterator[Located[T]]:
    """Yield the intact batches of an outbox that end after a position."""
    decode = msgspec.msgpack.Decoder(kind).decode
    for number in segment_numbers(path):
        if number >= position.segment:
            for payload, offset in payloads(path, number):
                with contextlib.suppress(*UNDECODABLE):
                    if (end := Position(number, offset)) > position:
                        yield Located(decode(payload), end)


def count_before(path: Path, position: Position) -> int:
    """Return the number of items before a place; -1 if it is unknown."""
    if position == START:
        return 0
    for first in (position.segment, position.segment - 1, 0):
        last: Located[BatchHead] | None = None
        for batch in located(path, BatchHead, Position(first, 0)):
            if batch.end > position:
                break
            last = batch
        if last is not None:
            return last.batch.behind
    return _UNKNOWN


class OutboxReader:
    """Reads the items of an outbox from a place on.

    Attributes:
        damaged: Number of items that it skipped since a batch is damaged or was removed.
        retained: Number of items that it skipped since the outbox had reached its limit.
    """

    def __init__(self, outbox: OutboxView, place: ItemPosition) -> None:
        self.damaged = self.retained = 0
        self._outbox, self._begin = outbox, place
        self._reader = Reader(outbox.path, OutboxBatch, place.position)
        self._count = count_before(outbox.path, place.position)  # number of items before `position`

    @property
    def count(self) -> int:
        """The number of items before `position`."""
        return self._count

    @property
    def position(self) -> Position:
        """The place after the last batch that was read."""
        return self._reader.position

    def read(self) -> list[tuple[Item, ItemPosition]] | None:
        """Return the items of the next batch, each with the place after it; `None` if there is none yet."""
        # Both at once: with the number of items of a later batch, those that were not read yet would count as missing.
        with self._outbox.grown:
            end, count = self._outbox.end, self._outbox.count
        start, reader = self.position, self._reader
        if not (records := reader.read(1)):
            if reader.position < end:  # nothing intact is left before the end
                self._skip_to(max(count, self._count + 1))
                self._go_to(end)
            return None
        (batch,) = records
        if self._count == _UNKNOWN:
            self.damaged += bool(reader.skipped_bytes or reader.lost_segments or reader.undecodable)
        # Items before the oldest segment that is left were delivered to all exporters and removed: they are not lost
        # (faults/test_release.py).
        elif batch.before > max(self._count, released_items(self._outbox.path)):
            self._skip_to(batch.before)
        self._count = batch.before + len(batch.items)
        inside = (ItemPosition(start, n) for n in range(1, len(batch.items)))
        behind = (*inside, ItemPosition(reader.position, 0))
        skipped = self._begin.index if self._begin.position == start else 0
        return list(zip(batch.items, behind, strict=False))[skipped:]

    def close(self) -> None:
        """Close the outbox."""
        self._reader.close()

    def _skip_to(self, count: int) -> None:
        """Count the items that are missing before a place with so many items before it."""
        missing, self._count = count - self._count, count
        if self._reader.lost_segments:
            self.retained += missing
        else:
            self.damaged += missing
        self._go_to(self.position)  # a reader counts what it skips from its beginning

    def _go_to(self, position: Position) -> None:
        self._reader.close()
        self._reader = Reader(self._outbox.path, OutboxBatch, position)

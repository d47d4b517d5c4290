"""The reading end of an outbox: it returns items in order, and the rebuilt items in place of a damaged batch.

Each batch has the number of items before it, so a reader notices missing items: after a flipped bit, or if a file was
cut or removed. It then asks the agent, by a file in `repairs/`, to rebuild the batch from the journals. The answer is
another file there, so readers in other processes work too. The reader sends the last checkpoint that it read: a rebuild
needs nothing before that.
"""

from __future__ import annotations

import contextlib
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from otel_rl.delivery.outbox import Batch, ItemPosition, released_items
from otel_rl.errors import UNDECODABLE
from otel_rl.export import Item
from otel_rl.journal.atomic_files import number_in, read_checked, write_checked
from otel_rl.journal.modes import make_directory
from otel_rl.journal.reader import Reader
from otel_rl.journal.segments import START, Position, payloads, segment_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")
_REPAIRS = "repairs"
_WANTED, _MADE = ".wanted", ".made"

_ASK_AGAIN_S = 5.0
_PAUSE_S = 0.05
"""Seconds between two checks for an answer; a reader has a thread of its own."""


class Wanted(msgspec.Struct, array_like=True):
    """A request of a reader for rebuilt items."""

    count: int = -1  # number of items before the damage; -1 if the reader does not know it
    checkpoint: bytes = b""  # of the batch before the damage; empty if the reader has not read it


class Made(msgspec.Struct, array_like=True):
    """The answer to a reader that found missing batches."""

    items: list[Item]  # the rebuilt items, and the items of the next intact batch
    end: Position  # the place after that batch
    count: int  # number of items before that place
    lost: int = 0  # number of items that could not be rebuilt
    checkpoint: bytes = b""  # of that batch; empty if there is none after the damage


class Head(msgspec.Struct, array_like=True):
    """A batch whose items are not decoded."""

    items: list[msgspec.Raw]
    checkpoint: msgspec.Raw
    held: msgspec.Raw = msgspec.Raw()
    settled: msgspec.Raw = msgspec.Raw()
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
    return _known_before(path, position).count


def _known_before(path: Path, position: Position) -> Wanted:
    if position == START:
        return Wanted(0)
    for first in (position.segment, position.segment - 1, 0):
        last: Located[Head] | None = None
        for found in located(path, Head, Position(first, 0)):
            if found.end > position:
                break
            last = found
        if last is not None:
            return Wanted(last.batch.behind, bytes(last.batch.checkpoint) if last.end == position else b"")
    return Wanted()


class OutboxReader:
    """Reads the items of an outbox from a place on; `lost` is the number of items that it skipped.

    If `rebuilds` is true, an agent rebuilds damaged batches; otherwise they are skipped.
    """

    def __init__(self, path: Path, place: ItemPosition, *, rebuilds: bool = True) -> None:
        self.lost = 0
        self._path = path
        self._begin = place
        self._rebuilds = rebuilds
        self._reader = Reader(path, Batch, place.position)
        self._known = _known_before(path, place.position)
        self._asked_at = 0.0
        self._gap: Position | None = None

    @property
    def position(self) -> Position:
        """The place after the last batch that was read."""
        return self._reader.position if self._gap is None else self._gap

    def read(self, end: Position) -> list[tuple[Item, ItemPosition]] | None:
        """Return the items of the next batch, each with the place after it; `None` if there is none yet.

        Args:
            end: The end of the outbox before this call, as far as it is known.
        """
        start = self.position
        if self._gap is None:
            found = self._reader.read(1)
            if found and self._is_next(found[0]):
                self._known = _behind(found[0])
                return self._placed(found[0].items, start)
            if not found and self._reader.position >= end:
                return None
            if not self._rebuilds:
                return self._skip(found, start, end)
            self._gap = start
        return self._made_again(start)

    def _is_next(self, batch: Batch) -> bool:
        """Return whether nothing is missing before a batch."""
        reader = self._reader
        noticed = reader.skipped_bytes or reader.lost_segments or reader.undecodable
        count = self._known.count
        if count < 0:
            return not noticed
        return batch.before <= max(count, released_items(self._path) if batch.before > count else 0)

    def _skip(self, found: list[Batch], start: Position, end: Position) -> list[tuple[Item, ItemPosition]] | None:
        if not found:
            return None
        before, count = found[0].before, self._known.count
        self.lost += before - count if 0 <= count < before else 1
        self._known = _behind(found[0])
        self._go_to(self._reader.position)
        return self._placed(found[0].items, start)

    def _made_again(self, start: Position) -> list[tuple[Item, ItemPosition]] | None:
        made = read_checked(_repair(self._path, start, _MADE), Made)
        if made is None:
            if time.monotonic() - self._asked_at > _ASK_AGAIN_S:
                self._asked_at = time.monotonic()
                make_directory(self._path / _REPAIRS)
                write_checked(_repair(self._path, start, _WANTED), self._known)
            time.sleep(_PAUSE_S)
            return None
        self._known, self._gap, self._asked_at = Wanted(made.count, made.checkpoint), None, 0.0
        self._go_to(made.end)
        return self._placed(made.items, start, skip=False)

    def close(self) -> None:
        """Close the outbox."""
        self._reader.close()

    def _go_to(self, position: Position) -> None:
        self._reader.close()
        self._reader = Reader(self._path, Batch, position)

    def _placed(self, items: list[Item], start: Position, *, skip: bool = True) -> list[tuple[Item, ItemPosition]]:
        # Rebuilt items have another order, so an index in the batch does not apply; the exporter skips what it has.
        inside = (ItemPosition(start, n if skip else 0) for n in range(1, len(items)))
        behind = (*inside, ItemPosition(self._reader.position, 0))
        skipped = self._begin.index if skip and self._begin.position == start else 0
        return list(zip(items, behind, strict=False))[skipped:]


def _behind(batch: Batch) -> Wanted:
    return Wanted(batch.before + len(batch.items) if batch.before >= 0 else -1, bytes(batch.checkpoint))


def wanted(path: Path) -> list[tuple[Position, Wanted]]:
    """Return the requests of readers of an outbox with their places, in order."""
    try:
        names = [file.name for file in (path / _REPAIRS).iterdir() if file.name.endswith(_WANTED)]
    except FileNotFoundError:
        return []
    found: dict[Position, Wanted] = {}
    for name in names:
        segment, offset = map(number_in, name.removesuffix(_WANTED).partition("-")[::2])
        if segment is not None and offset is not None:
            found[Position(segment, offset)] = read_checked(path / _REPAIRS / name, Wanted) or Wanted()
    return sorted(found.items(), key=itemgetter(0))


def write_made(path: Path, start: Position, made: Made) -> None:
    """Answer the readers that miss batches from `start` on.

    Raises:
        OSError: It cannot be written now.
    """
    write_checked(_repair(path, start, _MADE), made)
    _repair(path, start, _WANTED).unlink(missing_ok=True)


def forget_repairs(path: Path, first: int) -> None:
    """Remove the answers for segments before `first`."""
    with contextlib.suppress(FileNotFoundError):
        for file in (path / _REPAIRS).iterdir():
            segment = number_in(file.name.partition("-")[0])
            if segment is not None and segment < first:
                file.unlink(missing_ok=True)


def _repair(path: Path, start: Position, kind: str) -> Path:
    return path / _REPAIRS / f"{start.segment:08d}-{start.offset}{kind}"

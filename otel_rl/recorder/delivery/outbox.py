"""The outbox: the items of the agent, on disk, until every backend has them.

It is a journal of batches. A batch holds items together with a checkpoint of the agent, so that both are saved or
neither: the next agent continues exactly where the last one stopped.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Item
from otel_rl.recorder.files.atomic_files import read_line, read_number, write_atomically
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.segments import START, Position, segment_numbers, segment_path
from otel_rl.recorder.journal.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class OutboxBatch(msgspec.Struct, array_like=True):
    """Items that are saved at once."""

    items: list[Item]
    checkpoint: msgspec.Raw  # the agent's, as MessagePack, since only the last one is ever decoded
    before: int = 0  # number of items in the outbox before it


_ID = "id"
_RELEASED = "released"


class ItemPosition(msgspec.Struct, frozen=True):
    """A place in the outbox: the batch that begins at `position`, and the item in it."""

    position: Position = START
    index: int = 0


class _Positions(msgspec.Struct):
    """The part of a checkpoint that says how far the journals were read."""

    positions: dict[str, Position] = {}


class Outbox:
    """The writing end of an outbox; it notifies readers of new batches."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self.id = identity(path)  # a new outbox in the same place has another one
        if not self.id:
            self.id = secrets.token_hex(8)
            write_atomically(path / _ID, self.id.encode())
        self.grown = threading.Condition()  # notified when there is something new
        # The checkpoint of the last intact batch, empty if there is none, and the number of items ever written.
        self.checkpoint, self.count = _last_batch(path)
        self._writer = Writer(path, limit_bytes=limit_bytes)
        self.end = self._writer.position  # the place of the next batch

    @property
    def is_in_place(self) -> bool:
        """Whether the last segment is there, and as long as it was written."""
        try:
            return segment_path(self.path, self.end.segment).stat().st_size >= self.end.offset
        except OSError:
            return self.end.offset == 0

    def append(self, items: Sequence[Item], checkpoint: bytes) -> None:
        """Write a batch, and move `end` after it."""
        self._writer.append(OutboxBatch(list(items), msgspec.Raw(checkpoint), self.count))
        with self.grown:
            self.count += len(items)
            self.checkpoint = checkpoint
            self.end = self._writer.position
            self.grown.notify_all()

    def since(self, position: Position) -> Iterator[tuple[Position, OutboxBatch]]:
        """Yield the batches from a position on, each with its position."""
        reader = Reader(self.path, OutboxBatch, position)
        while True:
            place = reader.position
            if not (batches := reader.read(1)):
                break
            yield place, batches[0]
        reader.close()

    def close(self) -> None:
        """Close the outbox, and return reserved disk space."""
        self._writer.close()


def positions_of(checkpoint: bytes) -> dict[str, Position]:
    """Return the positions in the journals that are in a checkpoint of an agent; none if the checkpoint is empty."""
    return msgspec.msgpack.decode(checkpoint, type=_Positions).positions if checkpoint else {}


def identity(path: Path) -> str:
    """Return the identity of the outbox in a directory; empty if there is none."""
    return read_line(path / _ID)


def released_items(path: Path) -> int:
    """Return the number of items that were removed from the beginning of an outbox."""
    return read_number(path / _RELEASED)


def set_released_items(path: Path, count: int) -> None:
    """Record the number of items that will be removed from the beginning; call this before the removal.

    Raises:
        OSError: It cannot be written now.
    """
    write_atomically(path / _RELEASED, str(count).encode())


def _last_batch(path: Path) -> tuple[bytes, int]:
    """Return the checkpoint of the last intact batch, and the number of items up to its end."""
    for number in reversed(segment_numbers(path)):
        reader = Reader(path, OutboxBatch, Position(number, 0))
        last: OutboxBatch | None = None
        # `final`: an agent that was killed in the middle of a batch left half of it; the checkpoint is that of the
        # batch before (faults/test_kill.py).
        while batches := reader.read(final=True):
            last = batches[-1]
        reader.close()
        if last is not None:
            return bytes(last.checkpoint), last.before + len(last.items)
    return b"", released_items(path)

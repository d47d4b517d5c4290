"""The outbox: what the reducer made, on disk, until every destination has it.

It is a journal of batches. A batch holds items together with the reducer's state behind them, so that
either both are there or neither: an agent that starts anew goes on exactly where the last one was.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from otel_rl.agent.state import State
from otel_rl.export import Event, Params, Row, Span, Table
from otel_rl.journal import START, Position, Reader, Writer, segment_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from otel_rl.export import Item


class Checkpoint(msgspec.Struct):
    """Where an agent was: how far it had read each journal, and what it had not made items of yet."""

    positions: dict[str, Position]
    state: State


class Batch(msgspec.Struct, array_like=True):
    """What was made at once; the checkpoint is encoded, since only the last one is ever read."""

    items: list[Row | Params | Table | Event | Span]
    checkpoint: msgspec.Raw


class Place(msgspec.Struct, frozen=True):
    """A place in the outbox: the batch that begins at `position`, and the item in it."""

    position: Position = START
    index: int = 0


class Outbox:
    """The writing end; readers are told when there is something new."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self.grown = threading.Condition()
        self.checkpoint = _last_checkpoint(path)
        self._writer = Writer(path, limit_bytes=limit_bytes)
        self.end = self._writer.position
        self._encode = msgspec.msgpack.Encoder().encode

    def append(self, items: Sequence[Item], positions: Mapping[str, Position], state: State) -> None:
        """Write a batch; `end` is behind it then."""
        raw = msgspec.Raw(self._encode(Checkpoint(dict(positions), state)))
        self._writer.append(Batch(list(items), raw))
        with self.grown:
            self.end = self._writer.position
            self.grown.notify_all()

    def close(self) -> None:
        """Give back what is reserved."""
        self._writer.close()


def _last_checkpoint(path: Path) -> Checkpoint | None:
    for number in reversed(segment_numbers(path)):
        reader = Reader(path, Batch, Position(number, 0))
        last: Batch | None = None
        while batches := reader.read(final=True):
            last = batches[-1]
        reader.close()
        if last is not None:
            return msgspec.msgpack.decode(last.checkpoint, type=Checkpoint)
    return None

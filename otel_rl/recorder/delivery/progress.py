"""How far an exporter is in the outbox: what it has read, and what its cursor says is durable."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Ended, LogRecord, Row, Span, Trajectory
from otel_rl.recorder.delivery.handover import Offer
from otel_rl.recorder.delivery.outbox import ItemPosition
from otel_rl.recorder.delivery.outbox_reader import OutboxReader
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.journal.segments import START, Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl.export import Item
    from otel_rl.recorder.delivery.failures import Failures
    from otel_rl.recorder.delivery.handover import Handover
    from otel_rl.recorder.delivery.outbox_reader import OutboxView


class Cursor(msgspec.Struct, frozen=True):
    """The position of an exporter in an outbox, as its file has it."""

    position: Position = START  # the batch in the outbox
    index: int = 0  # the item in the batch
    outbox: str = ""  # the identity of the outbox
    ended: Ended | None = None  # how the run had ended there
    passed: dict[str, int] = {}  # number of items before it, by kind
    has: dict[str, int] = {}  # number of items by kind that the exporter has, and is not given behind the position


class OutboxProgress:
    """Reads the outbox for one exporter from its cursor on, and moves the cursor behind durable items.

    Args:
        outbox: The outbox.
        path: The file of the cursor.
        handover: What passes the items to the exporter, and knows which are durable.
        failures: What went wrong with the exporter.
        wants: Returns the item as the exporter gets it; `None` if it does not get it.
    """

    def __init__(
        self,
        outbox: OutboxView,
        path: Path,
        handover: Handover,
        failures: Failures,
        wants: Callable[[Item], Item | None],
    ) -> None:
        self._outbox, self._path = outbox, path
        self._handover, self._failures, self._wants = handover, failures, wants
        self.damaged = self.retained = 0  # numbers of items that the outbox does not have any more
        self._has: dict[str, int] = {}
        self.place = self._read_cursor()  # after the last durable item
        self._count = Counter(handover.passed)  # number of items that were read, by kind
        self._reader = OutboxReader(outbox, self.place)
        self.reached = self.delivered = self.place.position  # all before them is accepted, or durable
        # From the start: the agent removes what all cursors have passed, and knows a reader in the trainer only by its
        # file (faults/test_release.py).
        self.keep_cursor()

    @property
    def is_read(self) -> bool:
        """Whether everything in the outbox was read."""
        return self._reader.position >= self._outbox.end

    @property
    def unread(self) -> int:
        """Number of items in the outbox that were not read."""
        return max(0, self._outbox.count - self._reader.count)

    def read(self, size: int) -> None:
        """Read until a full batch waits, or nothing more is there: a slow exporter gets few and large batches."""
        while len(self._handover.waiting) < size:
            batch = self._reader.read()
            if batch is None:
                break
            for item, behind in batch:
                kind = type(item).__name__
                self._count[kind] += 1
                # An item counts by its kind, not by its place: in an outbox that is made of an archive, an exporter has
                # items behind its cursor that another one lacks (recorder/agent/test_refill.py).
                wanted = self._wants(item) if self._count[kind] > self._has.get(kind, 0) else None
                if wanted is None:
                    self._handover.skip(kind, behind)
                else:
                    self._handover.waiting.append(Offer(wanted, behind, [kind]))
        reader = self._reader
        if missing := reader.damaged + reader.retained:
            self.damaged, self.retained = self.damaged + reader.damaged, self.retained + reader.retained
            reader.damaged = reader.retained = 0
            self._failures.note(f"{missing} item(s) are missing in the outbox before {reader.position}")

    @property
    def position(self) -> Position:
        """The place behind everything that was read."""
        return self._reader.position

    def move(self) -> bool:
        """Move behind the last durable item, in memory; return whether that is another place."""
        place = self._handover.safe
        if place is None or place == self.place:
            return False
        self.place = place
        return True

    def write_cursor(self) -> None:
        """Write the cursor.

        Raises:
            OSError: It cannot be written.
        """
        place, handover = self.place, self._handover
        passed = dict(handover.passed)
        cursor = Cursor(place.position, place.index, self._outbox.id, handover.ended, passed, self._has)
        make_directory(self._path.parent)
        write_atomically(self._path, msgspec.json.encode(cursor))

    def keep_cursor(self) -> None:
        """Write the cursor if it does not exist: without it, items may be removed that the exporter needs."""
        if not self._path.exists():
            with contextlib.suppress(OSError):
                self.write_cursor()

    def start_over(self) -> None:
        """Go back to the beginning of the outbox, since the backend has lost its data."""
        self._has = {}
        self._count.clear()
        self.place = ItemPosition()
        self.close()
        self._reader = OutboxReader(self._outbox, self.place)
        self.reached = self.delivered = START
        with contextlib.suppress(OSError):  # a full disk: the file has the old position until the cursor moves
            write_atomically(self._path, msgspec.json.encode(Cursor(outbox=self._outbox.id)))

    def close(self) -> None:
        """Close the outbox."""
        self._reader.close()

    def _read_cursor(self) -> ItemPosition:
        cursor = read_json(self._path, Cursor)
        if cursor is None:
            return ItemPosition()
        end = self._outbox.end
        # A place beyond the end: segments were removed and the outbox made again under its old id
        # (faults/test_exactly_once.py).
        if cursor.outbox in ("", self._outbox.id) and (end == START or cursor.position <= end):
            self._handover.ended, self._has = cursor.ended, cursor.has
            self._handover.passed.update(cursor.passed)
            return ItemPosition(cursor.position, cursor.index)
        self._failures.count += 1
        self._failures.note(
            "the cursor belongs to another outbox, which is gone; delivering this one from its beginning"
        )
        return ItemPosition()


def cursor_file(exporter: str) -> str:
    """Return the name of the file with the cursor of an exporter."""
    return f"{exporter.replace(':', '.')}.json"


def sampled(item: Item, usual: Callable[[Row], Row] | None, *, logs: bool = False) -> Item | None:
    """Return an item as exporters get it that do not ask for everything.

    It is `None` for what trace sampling left out, and for what was printed unless it is to be sent (`logs`).
    """
    if isinstance(item, Span | Trajectory) and not item.sampled:
        return None
    if isinstance(item, LogRecord) and not logs:
        return None
    return usual(item) if usual is not None and isinstance(item, Row) else item

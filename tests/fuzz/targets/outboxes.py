"""Outboxes and cursors that were damaged."""

from __future__ import annotations

import contextlib
import shutil
import threading
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Item, Row, RunInfo
from otel_rl.recorder.agent.repair.release import Release
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import ItemPosition, Outbox, OutboxBatch, positions_of
from otel_rl.recorder.delivery.outbox_reader import OutboxReader, count_before
from otel_rl.recorder.delivery.progress import Cursor
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.journal.segments import MAGIC, START, Position, frame_of, segment_numbers, segment_path
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target
from tests.fuzz.targets.journals import EDIT

if TYPE_CHECKING:
    from pathlib import Path

_BATCHES, _ROWS = 6, 4
_SMALL = ("id", "released_items", "cursor", "released")


class DamagedOutbox(Target):
    """Batches of numbered rows, with bytes replaced, foreign batches or damaged small files.

    Each row arrives once and in order; what does not is counted. The first byte says what the rest is.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._intact = folder / "intact"
        self._intact.mkdir()
        self._rows: list[Item] = [Row(n, 10**18 + n, {"loss": n / 2}) for n in range(_BATCHES * _ROWS)]
        outbox = Outbox(self._intact, 1 << 30)
        for n in range(_BATCHES):
            outbox.append(self._rows[n * _ROWS : (n + 1) * _ROWS], msgspec.msgpack.encode({"positions": {"a": (1, n)}}))
        self._id, self._end = outbox.id, outbox.end
        outbox.close()

    def seeds(self) -> list[bytes]:
        encode, whole = msgspec.msgpack.encode, segment_path(self._intact, 1).read_bytes()
        batch = OutboxBatch(self._rows[:2], msgspec.Raw(encode(None)), before=4)
        cursor = msgspec.json.encode(Cursor(Position(1, 0), 2, self._id))
        edits = [
            EDIT.pack(at, size) + fill for at in (0, 40, 300) for size, fill in ((1, b"\xff"), (9, b""), (0, b"abc"))
        ]
        small = [b"\3" + self._id.encode(), b"\4" + b"5", b"\5" + cursor, b'\6{"first":2}']
        return [*(b"\0" + edit for edit in edits), b"\1" + encode(batch), b"\2" + whole, *small]

    def check(self, data: bytes) -> None:
        if not data:
            return
        place = self.folder / "outbox"
        shutil.copytree(self._intact, place)
        try:
            self._check(place, data[0] % 7, data[1:])
        finally:
            shutil.rmtree(place)

    def _check(self, place: Path, kind: int, data: bytes) -> None:
        segment = segment_path(place, 1)
        whole = segment.read_bytes()
        if kind == 0 and len(data) >= EDIT.size:
            at, size = EDIT.unpack_from(data)
            at %= len(whole) + 1
            segment.write_bytes(whole[:at] + data[EDIT.size :] + whole[at + size :])
        elif kind == 1:
            segment.write_bytes(frame_of(data) + whole)
        elif kind == 2:
            segment.write_bytes(data)
        elif kind >= 3:
            self._write_small(place, _SMALL[kind - 3], data)
        found, lost = self._read(place)
        if kind >= 3 and found != self._rows:
            raise Broken(f"{len(found)} of {len(self._rows)} rows arrived from intact batches")
        if kind == 0 and MAGIC[:1] not in data[EDIT.size :]:
            remaining = iter(self._rows)
            if not all(row in remaining for row in found):
                raise Broken("rows arrived twice, in another order, or that nobody wrote")
            if found and found[-1] == self._rows[-1] and len(found) < len(self._rows) and not lost:
                raise Broken(f"{len(self._rows) - len(found)} rows are missing and not counted")
        for number in segment_numbers(place):
            count_before(place, Position(number, 10))
        self._start_agent(place)

    def _write_small(self, place: Path, name: str, data: bytes) -> None:
        (place / "cursors").mkdir()
        if name == "cursor":
            (place / "cursors" / "jsonl.json").write_bytes(data)
        else:
            (place / name.removesuffix("_items")).write_bytes(data)

    def _read(self, place: Path) -> tuple[list[Item], int]:
        """Return the rows, and the number of those that the reader counts as lost."""
        reader = OutboxReader(_Written(place, self._end), ItemPosition())
        found: list[Item] = []
        for _ in range(4 * _BATCHES):
            if (batch := reader.read()) is not None:
                found += [item for item, _ in batch]
        reader.close()
        return found, reader.damaged + reader.retained

    def _start_agent(self, place: Path) -> None:
        """Open the outbox as the next agent does, with an exporter that has a cursor; write to it, and close it."""
        cursors = place / "cursors"
        cursors.mkdir(exist_ok=True)
        outbox = Outbox(place, 1 << 30)
        with contextlib.suppress(*UNDECODABLE):  # then the agent begins with an empty checkpoint
            positions_of(outbox.checkpoint)
        run = RunInfo("run", "p", "run", str(place), {})
        ExporterThread("jsonl", _Nothing, {}, run, outbox, cursors)
        Release(outbox, cursors, None).needed(["jsonl"])
        outbox.append(self._rows[:1], b"\xc0")
        outbox.close()
        if outbox.end == START:
            raise Broken("the next agent cannot write")


class _Written:
    """An outbox that nobody writes any more."""

    id = ""
    count = _BATCHES * _ROWS

    def __init__(self, path: Path, end: Position) -> None:
        self.path, self.end = path, end
        self.grown = threading.Condition()


class _Nothing:
    """An exporter that takes everything."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run

    def export(self, items: list[Item]) -> None:
        """Take items."""

    def shutdown(self) -> None:
        """Do nothing."""

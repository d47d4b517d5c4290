"""Journals that were damaged, and records that are intact but make no sense."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.agent.repair import unencodable
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import Checkpoint, State, of_machine
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.journal.ending import end_by_exit
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.record_events import Lost, Revived, from_event, to_event
from otel_rl.recorder.journal.records import AnyRecord, Record
from otel_rl.recorder.journal.segments import GAP, GAP_MAGIC, HEADER, MAGIC, frame_of, payload_at, segment_path
from otel_rl.recorder.settings.settings import Flops
from otel_rl.semconv.vocabulary import Vocabulary
from tests.fuzz import samples
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target

if TYPE_CHECKING:
    from pathlib import Path

EDIT = struct.Struct("<HB")
"""Where a damage is, and how many bytes it replaces; the rest of the input is written there."""


class DamagedJournal(Target):
    """Two segments of known records, with bytes replaced, or with foreign frames in between.

    Whatever is left is read in order; a record that is not returned is counted as lost. The first byte says what the
    rest of the input is: bytes that replace others, a whole segment, a payload to frame, or one of the small files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._payloads = [msgspec.msgpack.encode(record) for record in samples.all_records()]
        half = len(self._payloads) // 2
        self._second = self._payloads[half:]
        self._halves = [b"".join(map(frame_of, part)) for part in (self._payloads[:half], self._payloads[half:])]

    def seeds(self) -> list[bytes]:
        whole = self._halves[0]
        gap = frame_of(GAP.pack(1, 0, 500), GAP_MAGIC)
        edits = [
            EDIT.pack(at, size) + fill for at in (0, 5, 700) for size, fill in ((1, b"\xff"), (0, MAGIC), (200, b""))
        ]
        framed = self._payloads
        kinds = [b"\0" + edit for edit in edits] + [b"\1" + whole, b"\1" + gap + whole[:300], b"\1" + b"\0" * 64]
        return [*kinds, *(b"\2" + payload for payload in framed), b'\3{"first":2,"records":9}', b"\4" + _ending()]

    def check(self, data: bytes) -> None:
        if not data:
            return
        place = self.folder / "journal"
        place.mkdir()
        try:
            self._check(place, data[0] % 5, data[1:])
        finally:
            shutil.rmtree(place)

    def _check(self, place: Path, kind: int, data: bytes) -> None:
        first, foreign = self._halves[0], False
        if kind == 0 and len(data) >= EDIT.size:
            at, size = EDIT.unpack_from(data)
            at %= len(first) + 1
            first = first[:at] + data[EDIT.size :] + first[at + size :]
            # The damage may hold a frame; and if whole frames were cut out, nothing in the segment says so.
            foreign = MAGIC[:1] in data[EDIT.size :] or _is_whole(first)
        elif kind == 1:
            first, foreign = data, True
        elif kind == 2:
            first, foreign = frame_of(data) + first, True
        segment_path(place, 1).write_bytes(first)
        segment_path(place, 2).write_bytes(self._halves[1])
        if kind == 3:
            (place / "released").write_bytes(data)
        if kind == 4:
            (place / "end").write_bytes(data)
            end_by_exit(place)
        reader: Reader[Record] = Reader(place, AnyRecord)
        found: list[Record] = []
        while more := reader.read(7, final=True):
            found += more
        reader.close()
        self._compare(found, reader, foreign=foreign)

    def _compare(self, found: list[Record], reader: Reader[Record], *, foreign: bool) -> None:
        """Check that the records are those that were written, in order, and that those missing are counted."""
        raw = [msgspec.msgpack.encode(record) for record in found]
        if raw[len(raw) - len(self._second) :] != self._second:
            raise Broken("the records of an intact segment are missing")
        if foreign:
            return
        written = iter(self._payloads)
        if not all(payload in written for payload in raw):
            raise Broken("records were read that nobody wrote, or in another order")
        if len(raw) < len(self._payloads) and not (reader.skipped_bytes or reader.lost_segments or reader.undecodable):
            raise Broken(f"{len(self._payloads) - len(raw)} records are missing and not counted")


def _is_whole(segment: bytes) -> bool:
    """Return whether a segment has nothing but intact frames, and zeros behind them."""
    at = 0
    while (payload := payload_at(segment, at)) is not None:
        at += HEADER.size + len(payload)
    return not any(segment[at:])


class Records(Target):
    """Records of a peer, as events of OTLP: they are refused, put into quarantine, or reduced.

    The input is MessagePack: a list of `[journal, kind, body]`.
    """

    longest = 16 << 10

    def seeds(self) -> list[bytes]:
        events = [
            ("rank0.attempt0.00", *to_event(record))
            for record in [*samples.all_records(), Lost(10**18), Revived(10**18)]
        ]
        encode = msgspec.msgpack.encode
        return [
            encode(events),
            *(encode([*events[:6], event]) for event in events),
            *(encode([one]) for one in events),
            _with_long_numbers(events),
        ]

    def check(self, data: bytes) -> None:
        try:
            events = msgspec.msgpack.decode(data, type=list[tuple[str, str, object]])
        except UNDECODABLE:
            return
        found: list[tuple[str, Record]] = []
        for journal, name, body in events:
            try:
                found.append((of_machine(journal, "other"), from_event(name, body)))
            except ValueError:
                continue
        self._reduce(found)

    def _reduce(self, found: list[tuple[str, Record]]) -> None:
        """Reduce the records; nothing raises, and what comes out can be saved and read again."""
        vocabulary = Vocabulary("auto")
        quarantine = Quarantine(self.folder / "quarantine.jsonl")
        reductions = Reductions({"loss": "max", "*": "mean|p95"}, vocabulary.read, ["p50"])
        reducer = Reducer("run", reductions, vocabulary, Flops(), 10, State(), whole_world=True, quarantine=quarantine)
        made = reducer.feed(found, 10**9)
        made.add(reducer.tick(10**12))
        for item in unencodable.items(made.items, quarantine):
            _round_trip(item)
        _round_trip(Checkpoint({}, reducer.state))


def _round_trip(item: msgspec.Struct) -> None:
    msgspec.msgpack.decode(msgspec.msgpack.encode(item), type=type(item))


def _with_long_numbers(events: list[tuple[str, str, dict[str, object]]]) -> bytes:
    return msgspec.msgpack.encode([(f"rank{'9' * 30}.attempt{'8' * 30}.00", *event[1:]) for event in events[1:]])


def _ending() -> bytes:
    from otel_rl.recorder.journal.records import Finished

    raw = msgspec.msgpack.encode(Finished(10**18))
    return len(raw).to_bytes(4, "big") + raw + b"\1"

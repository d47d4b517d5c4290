"""Copies of what is not delivered: complete or not there, and nothing outside of a part."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
import pytest

from otel_rl.delivery import undelivered
from otel_rl.delivery.copier import Copier
from otel_rl.delivery.outbox import Outbox, identity
from otel_rl.delivery.undelivered import Copy, restore
from otel_rl.export import Row
from otel_rl.journal.records import Logged
from otel_rl.journal.segments import START, Position
from otel_rl.journal.writer import Writer
from otel_rl.setup import parts

if TYPE_CHECKING:
    from pathlib import Path


def written(place: Path, first: int, end: int) -> Outbox:
    """Write rows into the outbox of a part, and leave it open."""
    parts.remake(place)
    outbox = Outbox(place / "outbox", 1 << 30)
    for n in range(first, end):
        outbox.append([Row(n, n, {"loss": float(n)})], msgspec.msgpack.encode({"positions": {}}))
    return outbox


def rows(place: Path) -> list[int]:
    """Return the steps of the rows in the outbox of a part."""
    batches = Outbox(place / "outbox", 1 << 30).since(START)
    return [item.step for _, batch in batches for item in batch.items if isinstance(item, Row)]


def copied(run: Path, place: Path, outbox: Outbox, needed: Position = START) -> Copy:
    copier = Copier(run, place, "node", parts.this_machine())
    copier.copy(needed, outbox.end, outbox.checkpoint, {}, is_delivered=False, is_last=True)
    copy = undelivered.read(run, "node")
    assert copy is not None
    return copy


def test_a_copy(tmp_path: Path) -> None:
    """It holds what is needed of the outbox, with its identity, and the journals; a second one adds what is new."""
    part = tmp_path / "part"
    outbox = written(part, 0, 5)
    half = outbox.end
    (part / "journals" / "rank0.attempt0.1f").mkdir()
    Writer(part / "journals" / "rank0.attempt0.1f").append(Logged(1, 2, {"loss": 1.0}))
    copied(tmp_path, part, outbox)
    for n in range(5, 9):
        outbox.append([Row(n, n, {"loss": float(n)})], outbox.checkpoint)
    copy = copied(tmp_path, part, outbox, half)
    restore(tmp_path, copy, tmp_path / "other", manifest=True)

    assert copy.number == 2
    assert identity(tmp_path / "other" / "outbox") == outbox.id
    assert rows(tmp_path / "other") == [*range(4, 9)]  # the batch before the first one that is needed counts the items
    assert copy.files["outbox/00000001.seg"].first > 0
    assert copy.unread > 0


def test_files_that_are_removed_between_two_copies(tmp_path: Path) -> None:
    """They are copied again, as a whole."""
    part = tmp_path / "part"
    outbox = written(part, 0, 5)
    copier = Copier(tmp_path, part, "node", parts.this_machine())
    for _ in range(2):
        copier.copy(START, outbox.end, outbox.checkpoint, {}, is_delivered=False, is_last=True)
        copy = undelivered.read(tmp_path, "node")
        (undelivered.place_of(tmp_path, "node") / "outbox" / "00000001.seg").unlink()
    outbox.append([Row(5, 5, {"loss": 5.0})], outbox.checkpoint)
    copier.copy(START, outbox.end, outbox.checkpoint, {}, is_delivered=False, is_last=True)
    copy = undelivered.read(tmp_path, "node")
    assert copy is not None
    restore(tmp_path, copy, tmp_path / "other")

    assert rows(tmp_path / "other") == [*range(6)]


@pytest.mark.parametrize(
    "file", ["../../x", "/x", "outbox/../../x", "outbox//x", "journals/./x", "x", "run.json/x", "outbox"]
)
def test_a_copy_that_names_other_files(tmp_path: Path, file: str) -> None:
    """A writer of the run directory cannot make others write elsewhere: such a copy is invalid."""
    part = tmp_path / "part"
    copy = copied(tmp_path, part, written(part, 0, 1))
    raw = msgspec.msgpack.encode(msgspec.structs.replace(copy, contents={file: b"x"}))
    index = undelivered.place_of(tmp_path, "node") / "index"
    index.write_bytes(crc32(raw).to_bytes(4, "big") + raw)

    assert undelivered.read(tmp_path, "node") is None


def test_a_new_outbox_beside_an_older_copy(tmp_path: Path) -> None:
    """A part that has rows of its own already sets the copy aside; it is delivered by itself."""
    part = tmp_path / "part"
    copy = copied(tmp_path, part, written(part, 0, 3))
    fresh = tmp_path / "fresh"
    written(fresh, 7, 9)
    went_on = undelivered.catch_up(tmp_path, "node", fresh)

    assert not went_on
    assert rows(fresh) == [7, 8]
    assert undelivered.names(tmp_path) == [f"node.{copy.outbox}"]

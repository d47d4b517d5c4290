"""The writer of an archive: what it has written is read back as it was, whenever the writer dies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Ended, Event, Item, Machine, Row, Span, identity
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.tables import KINDS, ROWS, STEPS, TABLES
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.recorder.archive.items import any_items, everything, exactly

NO_LIMIT = 1 << 60


def in_order(items: Sequence[Item]) -> list[Item]:
    """Return items as `everything` returns them."""
    ordered = sorted(items, key=lambda item: item.time_unix_nano if isinstance(item, Machine) else 0)
    return [item for kind in KINDS for item in ordered if type(item) is kind]


def distinct(items: Sequence[Item]) -> list[Item]:
    """Return the items with different identities, and rows and measurements with different places."""
    return list({identity(item): item for item in items}.values())


def measurements(count: int) -> list[Item]:
    """Return items of a run, in the order of their times."""
    found: list[Item] = []
    for n in range(count):
        time = (n + 1) * 10**9
        found.append(Row(n, time, {"b": n / 7, "a": -0.0, f"only/{n}": n}))
        found.append(Span("rl.phase", f"{n:032x}", f"{n:016x}", "", time, time + n, {"rl.rank": n % 3}))
        found.append(Machine(n, time, {"gpu": n / 3}))
        found.append(Event("saved", time, {"path": "x"}, n))
    return [*found, Ended(count * 10**9, 0, "finished")]


@settings(max_examples=40, deadline=None)
@given(st.lists(any_items(), max_size=8).map(distinct), st.data())
def test_what_is_read_back_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, items: list[Item], data: st.DataObject
) -> None:
    """All fields of every kind, bit for bit, in the tail and sealed, whenever it was saved."""
    place = tmp_path_factory.mktemp("archive") / "node1"
    writer = ArchiveWriter(place, NO_LIMIT)
    for item in items:
        writer.add(item)
        if data.draw(st.booleans()):
            writer.save()
    writer.save()
    in_tail = everything(place)
    writer.save(seals=True)

    expected = list(map(exactly, in_order(items)))
    assert list(map(exactly, in_order(in_tail))) == expected
    assert list(map(exactly, in_order(everything(place)))) == expected
    assert not list((place / files.TAIL).rglob("*.parquet"))


class Killed(BaseException):
    """The end of the writer in the middle of its work."""


@pytest.mark.parametrize("seals", [False, True])
@pytest.mark.parametrize("at", range(16))
def test_a_writer_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, *, seals: bool) -> None:
    """Between any two files, the next writer goes on with what is not in a file, and nothing is there twice."""
    items, place = measurements(8), tmp_path / "node1"
    first = ArchiveWriter(place, NO_LIMIT)
    for item in items[:16]:
        first.add(item)
    first.save()
    write, written = files.write, [0]

    def killed(*args: object) -> None:
        if written[0] == at:
            raise Killed
        written[0] += 1
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write", killed)
    for item in items[16:]:
        first.add(item)
    try:
        first.save(seals=seals)
        first._kinds.clear()
    except Killed:
        pass
    monkeypatch.setattr(files, "write", write)
    between = everything(place)
    second = ArchiveWriter(place, NO_LIMIT)
    for item in items:
        if not second.holds(item):
            second.add(item)
    second.save(seals=True)

    assert len({identity(item) for item in between}) == len(between)
    assert list(map(exactly, everything(place))) == list(map(exactly, in_order(items)))
    assert not list((place / files.TAIL).rglob("*.parquet"))
    for table in TABLES:
        assert files.holes(files.listed(place / table.name)) == []


@pytest.mark.parametrize("seals", [False, True])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, seals: bool) -> None:
    """Everything is written when there is space again, and no half of it is left."""
    items, place = measurements(9), tmp_path / "node1"
    writer, write, written = ArchiveWriter(place, NO_LIMIT), files.write, [0]

    def often_full(*args: object) -> None:
        written[0] += 1
        if written[0] % 2 == 0:
            raise OSError(ENOSPC, "No space left on device")
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write", often_full)
    for item in items:
        writer.add(item)
        with suppress(OSError):
            writer.save(seals=seals)
    monkeypatch.setattr(files, "write", write)
    writer.save(seals=True)

    assert list(map(exactly, everything(place))) == list(map(exactly, in_order(items)))
    assert files.holes(files.listed(place / ROWS.name)) == []


@pytest.mark.slow
def test_young_files_are_merged(tmp_path: Path) -> None:
    """A run of slow steps writes a file for each, and there are never many; also after a writer was killed."""
    place, items, most = tmp_path / "node1", measurements(200), 0
    for part in (items[:400], items[400:]):
        writer = ArchiveWriter(place, NO_LIMIT)
        for n, item in enumerate(part):
            writer.add(item)
            if n % 4 == 3:
                writer.save()
                most = max(most, len(files.listed(place / files.TAIL / STEPS.name)))
        writer.save()

    assert most < 2 * 32
    assert list(map(exactly, everything(place))) == list(map(exactly, in_order(items)))
    writer.save(seals=True)
    assert list(map(exactly, everything(place))) == list(map(exactly, in_order(items)))
    assert not list((place / files.TAIL).rglob("*.parquet"))


def test_damage_between_merged_files(tmp_path: Path) -> None:
    """Of a writer that was killed before it had deleted the merged files, each item is sealed once."""
    place, items = tmp_path / "node1", [Row(n, n + 1, {"a": float(n)}) for n in range(34)]
    writer, merged = ArchiveWriter(place, NO_LIMIT), {}
    for item in items:
        tail = {path: path.read_bytes() for path in (place / files.TAIL).rglob("*.parquet")}
        merged = tail if len(tail) > len(merged) else merged
        writer.add(item)
        writer.save()
    for path, data in merged.items():
        path.write_bytes(data)
    newest = files.listed(place / files.TAIL / ROWS.name)[-1].path
    newest.write_bytes(newest.read_bytes()[:-9] + b"damage..!")
    again = ArchiveWriter(place, NO_LIMIT)
    again.save(seals=True)

    assert [item.step for item in everything(place) if isinstance(item, Row)] == list(range(33))


def test_a_damaged_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named and left out; everything else is read, and the next writer goes on behind it."""
    items, place = measurements(6), tmp_path / "node1"
    for part in (items[:8], items[8:16], items[16:]):
        writer = ArchiveWriter(place, NO_LIMIT)
        for item in part:
            writer.add(item)
        writer.save()
    damaged = files.listed(place / files.TAIL / ROWS.name)[1].path
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"damage..!")
    last = ArchiveWriter(place, NO_LIMIT)
    last.add(Row(99, 99 * 10**9, {"a": 1.0}))
    last.save(seals=True)
    found = everything(place)

    assert str(damaged.name) in caplog.text
    assert [item.step for item in found if isinstance(item, Row)] == [0, 1, 4, 5, 99]
    assert len([item for item in found if isinstance(item, Span)]) == 6
    assert files.holes(files.listed(place / ROWS.name)) == [(2, 4)]
    assert files.holes(files.listed(place / STEPS.name)) == []


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """A file with another name is neither read nor removed."""
    place = tmp_path / "node1"
    writer = ArchiveWriter(place, NO_LIMIT)
    writer.add(Row(0, 1, {"a": 1.0}))
    writer.save(seals=True)
    foreign = [place / ROWS.name / name for name in ("notes.txt", "0-1.parquet", ".DS_Store")]
    for path in foreign:
        path.write_text("mine")
    again = ArchiveWriter(place, NO_LIMIT)
    again.save(seals=True)

    assert len(everything(place)) == 1
    assert all(path.read_text() == "mine" for path in foreign)

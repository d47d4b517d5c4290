"""Records written to a journal are read from it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Record, StepStarted
from otel_rl.recorder.journal.segments import MAGIC, START, segment_numbers
from otel_rl.recorder.journal.writer import Writer
from tests.recorder.journal.written import RECORDS, SEGMENT_BYTES, directory, numbered, read_all, segment, write


@given(RECORDS, SEGMENT_BYTES, st.integers(1, 40))
def test_round_trip(records: list[Record], segment_bytes: int, limit: int) -> None:
    """A reader gives whatever was appended, equal and in order, as many at a time as it is asked for."""
    with directory() as place:
        write(place, records, segment_bytes)
        reader = Reader(place, AnyRecord)
        found = [reader.read(limit) for _ in range(len(records) // limit + 1)]
        reader.close()

        assert found == [records[start : start + limit] for start in range(0, len(records) + 1, limit)]
        assert (reader.skipped_bytes, reader.lost_segments, reader.undecodable) == (0, 0, 0)


@given(RECORDS, SEGMENT_BYTES)
def test_resume(records: list[Record], segment_bytes: int) -> None:
    """Positions grow with the records; a new reader at any of them goes on with the very next record."""
    with directory() as place:
        write(place, records, segment_bytes)
        reader = Reader(place, AnyRecord)
        positions = [START]
        while reader.read(1):
            positions.append(reader.position)
        reader.close()

        assert sorted(set(positions)) == positions
        for n, position in enumerate(positions):
            assert read_all(Reader(place, AnyRecord, position)) == records[n:]


@given(RECORDS, RECORDS, SEGMENT_BYTES)
def test_writer_after_writer(first: list[Record], second: list[Record], segment_bytes: int) -> None:
    """A second writer goes on in a segment of its own behind the first one's."""
    with directory() as place:
        write(place, first, segment_bytes)
        write(place, second, segment_bytes)

        assert first + second == read_all(Reader(place, AnyRecord))


def test_reading_while_writing(tmp_path: Path) -> None:
    """A record can be read as soon as `append` returns, while the segment is still open."""
    writer, reader = Writer(tmp_path, segment_bytes=200), Reader(tmp_path, AnyRecord)
    for record in numbered(50):
        writer.append(record)

        assert [record] == reader.read()
        assert reader.read() == []


def test_no_directory(tmp_path: Path) -> None:
    """A journal that is not there yet is empty."""
    assert Reader(tmp_path / "none", AnyRecord).read() == []


def test_foreign_files(tmp_path: Path) -> None:
    """Files that are not segments are left alone."""
    write(tmp_path, numbered(3))
    for name in ("lock", "x.seg", "00000009.seg.old"):
        (tmp_path / name).write_bytes(b"something else")

    assert segment_numbers(tmp_path) == [1]
    assert numbered(3) == read_all(Reader(tmp_path, AnyRecord))


def test_magic_in_a_record(tmp_path: Path) -> None:
    """A record may hold the bytes that mark a frame, a whole frame among them."""
    (frame,) = numbered(1)
    write(tmp_path / ".", [frame])
    inner = segment(tmp_path, 1).read_bytes()
    records = [StepStarted(1, 2, MAGIC), StepStarted(2, 3, inner), StepStarted(3, 4, inner * 3 + MAGIC)]
    write(tmp_path, records)

    assert [frame, *records] == read_all(Reader(tmp_path, AnyRecord))


def test_close_gives_space_back(tmp_path: Path) -> None:
    """Closing gives back what was reserved of the last segment."""
    (written,) = write(tmp_path, numbered(1), segment_bytes=1 << 20)

    assert written.end == segment(tmp_path, 1).stat().st_size

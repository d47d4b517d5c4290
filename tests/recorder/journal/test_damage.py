"""A journal that was cut, or garbled."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Logged, Record
from otel_rl.recorder.journal.segments import MAGIC, segment_numbers
from otel_rl.recorder.journal.writer import Writer
from tests.recorder.journal.written import RECORDS, SEGMENT_BYTES, directory, numbered, read_all, segment, steps, write


@given(RECORDS, SEGMENT_BYTES, st.data())
def test_cut_anywhere(records: list[Record], segment_bytes: int, data: st.DataObject) -> None:
    """A segment that ends early, at any byte, loses the records behind the cut and none else."""
    with directory() as place:
        written = write(place, records, segment_bytes)
        number = data.draw(st.sampled_from(segment_numbers(place)))
        size = segment(place, number).stat().st_size
        cut = data.draw(st.integers(0, size))
        with segment(place, number).open("r+b") as file:
            file.truncate(cut)
        write(place, numbered(1))
        kept = [w.record for w in written if w.segment != number or w.end <= cut]

        assert kept + numbered(1) == read_all(Reader(place, AnyRecord))


@given(RECORDS.filter(len), SEGMENT_BYTES, st.binary(min_size=1, max_size=300), st.data())
def test_garbage_in_the_middle(records: list[Record], segment_bytes: int, garbage: bytes, data: st.DataObject) -> None:
    """Garbage over any part of a segment, a byte or more, loses the frames that it touches, which are counted."""
    with directory() as place:
        written = write(place, records, segment_bytes)
        number = data.draw(st.sampled_from(written)).segment
        content = bytearray(segment(place, number).read_bytes())
        start = data.draw(st.integers(0, len(content) - 1))
        before = bytes(content)
        content[start : start + len(garbage)] = garbage
        segment(place, number).write_bytes(content)
        hit = [w for w in written if w.segment == number and before[w.start : w.end] != bytes(content[w.start : w.end])]
        reader = Reader(place, AnyRecord)

        assert [w.record for w in written if w not in hit] == read_all(reader)
        assert 0 in garbage or not hit or reader.skipped_bytes > 0  # zeros may look like the end of the journal
        assert len(content) > len(before) or reader.skipped_bytes <= sum(w.end - w.start for w in hit)


@given(st.binary(max_size=2000))
def test_nothing_but_garbage(garbage: bytes) -> None:
    """A segment of garbage holds no record, is counted, and does not keep the next one from being read."""
    with directory() as place:
        segment(place, 1).write_bytes(garbage)
        write(place, numbered(3))
        reader = Reader(place, AnyRecord)

        assert numbered(3) == read_all(reader)
        assert len(garbage.rstrip(b"\0")) == reader.skipped_bytes


def test_length_beyond_the_file(tmp_path: Path) -> None:
    """A header that promises gigabytes costs its own frame only."""
    written = write(tmp_path, numbered(3))
    content = bytearray(segment(tmp_path, 1).read_bytes())
    struct.pack_into("<I", content, written[1].start + len(MAGIC), 2**32 - 1)
    segment(tmp_path, 1).write_bytes(content)

    assert steps(read_all(Reader(tmp_path, AnyRecord))) == [0, 2]


def test_damage_behind_which_the_writer_goes_on(tmp_path: Path) -> None:
    """A damaged frame is skipped as soon as an intact one follows, though the segment is still being written."""
    writer, reader = Writer(tmp_path), Reader(tmp_path, AnyRecord)
    for record in numbered(3):
        writer.append(record)
    with segment(tmp_path, 1).open("r+b") as file:
        file.write(b"\xff")

    assert steps(reader.read()) == [1, 2]
    assert reader.read() == []

    writer.append(Finished(1))

    assert [Finished(1)] == reader.read()


def test_unknown_record(tmp_path: Path) -> None:
    """An intact frame of another type, from a newer version say, is counted and the next ones are read."""
    write(tmp_path, [Finished(1), *numbered(2), Finished(2)])
    reader = Reader(tmp_path, Logged)

    assert steps(read_all(reader)) == [0, 1]
    assert reader.undecodable == 2

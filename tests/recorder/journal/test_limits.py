"""A journal that reaches its limits, or the disk's."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Observed, StepStarted
from otel_rl.recorder.journal.segments import segment_numbers
from otel_rl.recorder.journal.writer import Writer
from tests.recorder.journal.written import directory, numbered, read_all, steps, write


@pytest.mark.slow
@given(st.integers(1, 300), st.integers(100, 1000), st.integers(1000, 5000))
def test_retention(count: int, segment_bytes: int, limit_bytes: int) -> None:
    """The journal stays within its limit, and keeps the newest records."""
    with directory() as place:
        writer = Writer(place, segment_bytes=segment_bytes, limit_bytes=limit_bytes)
        for record in numbered(count):
            writer.append(record)

            assert sum(path.stat().st_size for path in place.glob("*.seg")) <= limit_bytes

        writer.close()
        reader = Reader(place, AnyRecord)
        kept = steps(read_all(reader))

        assert list(range(count - len(kept), count)) == kept
        assert kept
        assert segment_numbers(place)[0] - 1 == reader.lost_segments
        assert count - len(kept) == reader.lost_records


def test_retention_behind_a_reader(tmp_path: Path) -> None:
    """A reader whose place was removed goes on with the oldest segment that is left, and counts the lost ones."""
    writer = Writer(tmp_path, segment_bytes=1, limit_bytes=250)
    reader = Reader(tmp_path, AnyRecord)
    writer.append(numbered(1)[0])
    reader.read()
    reader.close()
    for record in numbered(20, first=1):
        writer.append(record)
    resumed = Reader(tmp_path, AnyRecord, reader.position)
    kept = steps(read_all(resumed))

    assert list(range(21 - len(kept), 21)) == kept
    assert segment_numbers(tmp_path)[0] - 2 == resumed.lost_segments
    assert 20 - len(kept) == resumed.lost_records


def test_retention_of_a_part_that_was_read(tmp_path: Path) -> None:
    """A reader whose segment was removed while it was closed counts the records of it that it had not read."""
    writer = Writer(tmp_path, segment_bytes=200, limit_bytes=400)
    for record in numbered(4):
        writer.append(record)
    reader = Reader(tmp_path, AnyRecord)
    reader.read(3)
    reader.close()
    for record in numbered(50, first=4):
        writer.append(record)
    kept = read_all(reader)

    assert reader.lost_records == 54 - 3 - len(kept)


def test_retention_of_what_is_being_read(tmp_path: Path) -> None:
    """A segment that is removed while a reader is in it is still read to its end."""
    writer = Writer(tmp_path, segment_bytes=200, limit_bytes=200)
    for record in numbered(4):
        writer.append(record)
    reader = Reader(tmp_path, AnyRecord)
    first = steps(reader.read(1))
    while 1 in segment_numbers(tmp_path):
        writer.append(Finished(0))

    assert first + steps(reader.read()) == [0, 1, 2, 3]


def test_retention_counts_what_was_there(tmp_path: Path) -> None:
    """The segments of earlier writers count towards the limit."""
    for _ in range(10):
        write(tmp_path, numbered(10))
    Writer(tmp_path, segment_bytes=1000, limit_bytes=2000)

    assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 2000


def test_large_record(tmp_path: Path) -> None:
    """A record larger than a segment gets a segment of its own size."""
    records = [*numbered(1), Observed(1, 2, {"x": random.Random(7).randbytes(5 << 20)}), *numbered(1, first=1)]
    write(tmp_path, records)

    assert records == read_all(Reader(tmp_path, AnyRecord))


def test_too_large_record(tmp_path: Path) -> None:
    """A record of more than 64 MiB is refused, and the writer goes on."""
    writer = Writer(tmp_path)
    with pytest.raises(ValueError, match="must be at most 67108864 bytes"):
        writer.append(StepStarted(1, 2, bytes(64 << 20)))
    writer.append(Finished(1))

    assert [Finished(1)] == Reader(tmp_path, AnyRecord).read()


def test_unwritable_directory(tmp_path: Path) -> None:
    """A journal that cannot be made raises at once."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Writer(tmp_path / "file" / "journal")


def test_a_full_segment_closes_no_other_file(tmp_path: Path) -> None:
    """A program that closed its descriptors has its own file at the number that the first segment's mapping had."""
    place = tmp_path / "journal"
    place.mkdir()
    writer = Writer(place, segment_bytes=200)
    (number,) = (int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.resolve().is_relative_to(place))
    own = os.open(tmp_path / "own", os.O_CREAT | os.O_WRONLY)
    os.dup2(own, number)  # as the program's own file gets the number
    os.close(own)
    own = number
    try:
        for record in numbered(50):
            writer.append(record)
        writer.close()
        del writer
        gc.collect()

        assert os.write(own, b"whole") == len(b"whole")
    finally:
        os.close(own)

"""The journal: what was appended is read, exactly and in order, whatever happens to the file."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import struct
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.journal import MAGIC, START, Position, Reader, Writer, segment_numbers
from otel_rl.records import AnyRecord, Finished, Happened, Logged, Record, StepStarted
from tests.processes import run_python, start_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INT64 | st.floats(allow_nan=False)
RECORDS = st.lists(
    st.builds(Logged, INT64, INT64, st.dictionaries(st.text(), NUMBERS, max_size=5))
    | st.builds(Happened, st.text(), INT64, st.dictionaries(st.text(), NUMBERS | st.text() | st.booleans(), max_size=3))
    | st.builds(StepStarted, INT64, INT64, st.binary(max_size=200) | st.just(MAGIC) | st.just(MAGIC * 9)),
    max_size=30,
)
SEGMENT_BYTES = st.integers(1, 2000)


class Written(NamedTuple):
    """A record, and the segment and the bytes that it lies in."""

    record: Record
    segment: int
    start: int
    end: int


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def segment(place: Path, number: int) -> Path:
    return place / f"{number:08d}.seg"


def write(place: Path, records: Sequence[Record], segment_bytes: int = 4096) -> list[Written]:
    writer = Writer(place, segment_bytes=segment_bytes)
    written = []
    before = writer.position
    for record in records:
        writer.append(record)
        after = writer.position
        start = before.offset if after.segment == before.segment else 0
        written.append(Written(record, after.segment, start, after.offset))
        before = after
    writer.close()
    return written


def read_all(reader: Reader[Record], limit: int = 1000) -> list[Record]:
    records: list[Record] = []
    while more := reader.read(limit, final=True):
        records += more
    reader.close()
    return records


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Logged(number, 0, {"loss": number / 3}) for number in range(first, first + count)]


def steps(records: Sequence[Record]) -> list[int]:
    return [record.step for record in records if isinstance(record, Logged)]


# What is written is read


@given(RECORDS, SEGMENT_BYTES, st.integers(1, 40))
def test_round_trip(records: list[Record], segment_bytes: int, limit: int) -> None:
    """Whatever was appended is read back equal and in order, for any size of segments and any limit."""
    with directory() as place:
        write(place, records, segment_bytes)
        reader = Reader(place, AnyRecord)
        actual = read_all(reader, limit)

        assert records == actual
        assert (reader.skipped_bytes, reader.lost_segments, reader.undecodable) == (0, 0, 0)


@given(RECORDS, SEGMENT_BYTES, st.integers(1, 10))
def test_any_limit_is_kept(records: list[Record], segment_bytes: int, limit: int) -> None:
    """A reader gives as many records as it is asked for, and less only at the end."""
    with directory() as place:
        write(place, records, segment_bytes)
        reader = Reader(place, AnyRecord)
        sizes = [len(reader.read(limit)) for _ in range(len(records) // limit + 1)]
        reader.close()

        assert [limit] * (len(records) // limit) + [len(records) % limit] == sizes


@given(RECORDS, SEGMENT_BYTES, st.integers(1, 10))
def test_resume(records: list[Record], segment_bytes: int, limit: int) -> None:
    """A new reader at any position that a reader gave goes on with the very next record."""
    with directory() as place:
        write(place, records, segment_bytes)
        reader = Reader(place, AnyRecord)
        before: list[Record] = []
        while True:
            rest = read_all(Reader(place, AnyRecord, reader.position))

            assert records == before + rest

            more = reader.read(limit)
            if not more:
                break
            before += more
        reader.close()


@given(RECORDS, SEGMENT_BYTES)
def test_positions_are_ordered(records: list[Record], segment_bytes: int) -> None:
    """Positions grow as the records do."""
    with directory() as place:
        write(place, records, segment_bytes)
        reader = Reader(place, AnyRecord)
        positions = [START]
        while reader.read(1):
            positions.append(reader.position)
        reader.close()

        assert sorted(set(positions)) == positions


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
    """Files that are no segments are left alone."""
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


# A damaged file


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


@given(RECORDS.filter(len), SEGMENT_BYTES, st.data())
def test_flipped_byte(records: list[Record], segment_bytes: int, data: st.DataObject) -> None:
    """A byte that is not what was written loses the frame that it is in, and that is counted."""
    with directory() as place:
        written = write(place, records, segment_bytes)
        hit = data.draw(st.sampled_from(written))
        content = bytearray(segment(place, hit.segment).read_bytes())
        content[data.draw(st.integers(hit.start, hit.end - 1))] ^= data.draw(st.integers(1, 255))
        segment(place, hit.segment).write_bytes(content)
        reader = Reader(place, AnyRecord)
        actual = read_all(reader)

        assert [w.record for w in written if w is not hit] == actual
        assert 0 < reader.skipped_bytes <= hit.end - hit.start


@given(RECORDS.filter(len), SEGMENT_BYTES, st.binary(min_size=1, max_size=300), st.data())
def test_garbage_in_the_middle(records: list[Record], segment_bytes: int, garbage: bytes, data: st.DataObject) -> None:
    """Garbage written over any part of a segment loses the frames that it touches and none else."""
    with directory() as place:
        written = write(place, records, segment_bytes)
        number = data.draw(st.sampled_from(written)).segment
        content = bytearray(segment(place, number).read_bytes())
        start = data.draw(st.integers(0, len(content) - 1))
        before = bytes(content)
        content[start : start + len(garbage)] = garbage
        segment(place, number).write_bytes(content)
        intact = [
            w.record
            for w in written
            if w.segment != number or before[w.start : w.end] == bytes(content[w.start : w.end])
        ]

        assert intact == read_all(Reader(place, AnyRecord))


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


def test_torn_tail_is_waited_for(tmp_path: Path) -> None:
    """A frame at the end that is not complete is not skipped as long as somebody may still write it."""
    written = write(tmp_path, numbered(2))
    content = segment(tmp_path, 1).read_bytes()
    segment(tmp_path, 1).write_bytes(content[: written[1].end - 1] + b"\0" * 100)
    reader = Reader(tmp_path, AnyRecord)
    before = steps(reader.read()) + steps(reader.read())
    segment(tmp_path, 1).write_bytes(content)

    assert before == [0]
    assert steps(reader.read()) == [1]
    assert reader.skipped_bytes == 0


def test_unknown_record(tmp_path: Path) -> None:
    """An intact frame of another type, from a newer version say, is counted and the next ones are read."""
    write(tmp_path, [Finished(1), *numbered(2), Finished(2)])
    reader = Reader(tmp_path, Logged)

    assert steps(read_all(reader)) == [0, 1]
    assert reader.undecodable == 2


# Limits


@given(st.integers(1, 300), st.integers(100, 1000), st.integers(1000, 5000))
def test_retention(count: int, segment_bytes: int, limit_bytes: int) -> None:
    """The journal stays within its limit, and keeps the newest records."""
    with directory() as place:
        writer = Writer(place, segment_bytes=segment_bytes, limit_bytes=limit_bytes)
        for record in numbered(count):
            writer.append(record)

            assert sum(path.stat().st_size for path in place.iterdir()) <= limit_bytes

        writer.close()
        reader = Reader(place, AnyRecord)
        kept = steps(read_all(reader))

        assert list(range(count - len(kept), count)) == kept
        assert kept
        assert segment_numbers(place)[0] - 1 == reader.lost_segments


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

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2000


def test_large_record(tmp_path: Path) -> None:
    """A record larger than a segment gets a segment of its own size."""
    records = [*numbered(1), StepStarted(1, 2, random.Random(7).randbytes(5 << 20)), *numbered(1, first=1)]
    write(tmp_path, records)

    assert records == read_all(Reader(tmp_path, AnyRecord))


def test_too_large_record(tmp_path: Path) -> None:
    """A record of more than 64 MiB is refused, and the writer goes on."""
    writer = Writer(tmp_path)
    with pytest.raises(ValueError, match="larger than 67108864"):
        writer.append(StepStarted(1, 2, bytes(64 << 20)))
    writer.append(Finished(1))

    assert [Finished(1)] == Reader(tmp_path, AnyRecord).read()


def test_closed_writer(tmp_path: Path) -> None:
    """A writer that is closed refuses, and a second `close` does nothing."""
    writer = Writer(tmp_path)
    writer.append(Finished(1))
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.append(Finished(2))

    assert [Finished(1)] == read_all(Reader(tmp_path, AnyRecord))


def test_unwritable_directory(tmp_path: Path) -> None:
    """A journal that cannot be made raises at once."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Writer(tmp_path / "file" / "journal")


_FULL_DISK = """
import pathlib, resource
from otel_rl.journal import Reader, Writer
from otel_rl.records import AnyRecord, Logged

place = pathlib.Path("journal")
place.mkdir()
writer = Writer(place, segment_bytes=1000)
kept = []
def append(count):
    failed = 0
    for _ in range(count):
        record = Logged(append.next, 0, {"loss": 0.5})
        append.next += 1
        try:
            writer.append(record)
        except OSError:
            failed += 1
        else:
            kept.append(record)
    return failed
append.next = 0
assert append(100) == 0
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
failed = append(100)
assert 0 < failed < 100, failed
assert Reader(place, AnyRecord).read() == kept
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert append(100) == 0
reader = Reader(place, AnyRecord)
assert reader.read() == kept
assert reader.skipped_bytes == 0
print(len(kept) + failed)
"""


def test_full_disk(tmp_path: Path) -> None:
    """A full disk raises from `append`, loses nothing that was written, and is forgotten when there is room again."""
    assert run_python(_FULL_DISK, tmp_path) == "300\n"


def test_interrupted_while_reserving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while a segment is being reserved does not keep the next record from being written."""
    writer = Writer(tmp_path, segment_bytes=1)
    reserve = os.posix_fallocate

    def interrupted(fd: int, offset: int, size: int) -> None:
        reserve(fd, offset, size)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "posix_fallocate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.append(Finished(1))
    writer.append(Finished(2))

    assert Reader(tmp_path, AnyRecord).read() == [Finished(2)]


# Several at once


def test_two_threads(tmp_path: Path) -> None:
    """Threads that append at once write whole frames, each thread's in its order."""
    writer = Writer(tmp_path, segment_bytes=10_000)
    records = [[Happened(f"thread{n}", i, {}) for i in range(3000)] for n in range(2)]

    def append_all(mine: list[Happened]) -> None:
        for record in mine:
            writer.append(record)

    threads = [threading.Thread(target=append_all, args=(mine,)) for mine in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    reader = Reader(tmp_path, AnyRecord)
    actual = read_all(reader)

    assert records == [[r for r in actual if isinstance(r, Happened) and r.name == f"thread{n}"] for n in range(2)]
    assert reader.skipped_bytes == 0


@pytest.mark.parametrize("look", range(6))
def test_written_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int) -> None:
    """Records that are written between any two looks of a reader into the file are all read."""
    records = numbered(4)
    writer, reader = Writer(tmp_path), Reader(tmp_path, AnyRecord)
    for record in records[:2]:
        writer.append(record)
    looks, pread = itertools.count(), os.pread

    def pread_after_the_writer(fd: int, size: int, offset: int) -> bytes:
        if next(looks) == look:
            for record in records[2:]:
                writer.append(record)
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread_after_the_writer)

    assert records == reader.read() + reader.read() + reader.read()
    assert reader.skipped_bytes == 0


def test_every_stage_of_a_frame(tmp_path: Path) -> None:
    """Whatever part of a frame is there yet, the reader waits for the rest: a bare magic is no empty record."""
    written = write(tmp_path, numbered(2))
    segment = next(iter(tmp_path.glob("*.seg")))
    whole = segment.read_bytes()
    first, second = written[0].end, written[1].end
    for there in range(first, second):
        segment.write_bytes(whole[:there] + bytes(len(whole) - there))
        reader = Reader(tmp_path, AnyRecord)
        assert numbered(2)[:1] == reader.read()
        segment.write_bytes(whole)

        assert numbered(2)[1:] == reader.read()
        assert (reader.skipped_bytes, reader.undecodable) == (0, 0)


@pytest.mark.parametrize("looks_too_early", range(9))
def test_written_while_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_too_early: int) -> None:
    """A frame that was half written when it was looked at, and has one behind it by then, is not taken for torn."""
    written = write(tmp_path, numbered(3))
    looks, pread = itertools.count(), os.pread

    def pread_early(fd: int, size: int, offset: int) -> bytes:
        read = pread(fd, size, offset)
        last = written[1].end - 1 - offset
        too_early = next(looks) < looks_too_early and 0 <= last < len(read)
        return read[:last] + b"?" + read[last + 1 :] if too_early else read

    monkeypatch.setattr(os, "pread", pread_early)
    reader = Reader(tmp_path, AnyRecord)

    assert numbered(3) == reader.read() + reader.read()
    assert reader.skipped_bytes == 0


_FOLLOW = """
import pathlib
from otel_rl.journal import Reader
from otel_rl.records import AnyRecord, Finished

reader = Reader(pathlib.Path("."), AnyRecord)
print("ready", flush=True)
expected = 0
while True:
    for record in reader.read():
        if isinstance(record, Finished):
            print(expected, reader.skipped_bytes, reader.lost_segments, reader.undecodable)
            raise SystemExit
        assert record.step == expected, (record.step, expected)
        expected += 1
"""


def test_reader_in_another_process(tmp_path: Path) -> None:
    """A reader that follows closely in another process sees every record exactly once.

    The pauses make it look while frames are being written: that used to lose one in some thousand.
    """
    follower = start_python(_FOLLOW, tmp_path)
    assert follower.stdout is not None
    follower.stdout.readline()
    writer = Writer(tmp_path, segment_bytes=50_000)
    for number, record in enumerate(numbered(40_000)):
        writer.append(record)
        if number % 3 == 0:
            until = time.perf_counter_ns() + 20_000
            while time.perf_counter_ns() < until:
                pass
    writer.append(Finished(0))
    output, errors = follower.communicate(timeout=60)

    assert output == "40000 0 0 0\n", errors


_APPEND_FOREVER = """
import itertools, mmap, pathlib, struct
from otel_rl.journal import Writer
from otel_rl.records import Logged

with open("returned", "r+b") as file:
    returned = mmap.mmap(file.fileno(), 8)
writer = Writer(pathlib.Path("."), segment_bytes=20_000)
for number in itertools.count():
    writer.append(Logged(number, 0, {"loss": number / 3}))
    struct.pack_into("<Q", returned, 0, number + 1)
"""


@pytest.mark.parametrize("round_", range(4))
def test_killed_while_appending(tmp_path: Path, round_: int) -> None:
    """A process that is killed at any moment loses nothing that `append` returned for."""
    (tmp_path / "returned").write_bytes(bytes(8))
    with (tmp_path / "returned").open("rb") as file:
        returned = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    child = start_python(_APPEND_FOREVER, tmp_path)
    while int.from_bytes(returned[:8], "little") < 1000:
        assert child.poll() is None
        time.sleep(0.001)
    time.sleep(random.Random(round_).uniform(0, 0.02))
    child.kill()
    child.communicate(timeout=60)
    count = int.from_bytes(returned[:8], "little")
    actual = read_all(Reader(tmp_path, AnyRecord))

    assert list(range(len(actual))) == steps(actual)
    assert numbered(count) == actual[:count]
    assert len(actual) <= count + 1


def test_segment_names(tmp_path: Path) -> None:
    """Segments are numbered from one, without a gap."""
    written = write(tmp_path, numbered(30), segment_bytes=100)
    numbers = [number for number, _ in itertools.groupby(w.segment for w in written)]

    assert list(range(numbers[0], numbers[-1] + 1)) == numbers
    assert segment_numbers(tmp_path)[-1] == numbers[-1]
    assert Position(1, 0) > START

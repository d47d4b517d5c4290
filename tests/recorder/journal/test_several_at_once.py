"""A journal that several write, or that is read while it is written."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import threading
import time
from pathlib import Path

import pytest

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Happened
from otel_rl.recorder.journal.writer import Writer
from tests.processes import start_python
from tests.recorder.journal.written import numbered, read_all, steps, write


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
    """If only a part of a frame is written, the reader waits for the rest: a bare magic is not an empty record."""
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
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished

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
from otel_rl.recorder.journal.writer import Writer
from otel_rl.recorder.journal.records import Logged

with open("returned", "r+b") as file:
    returned = mmap.mmap(file.fileno(), 8)
writer = Writer(pathlib.Path("."), segment_bytes=20_000)
for number in itertools.count():
    writer.append(Logged(number, 0, {"loss": number / 3}))
    returned[:] = struct.pack("<Q", number + 1)
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

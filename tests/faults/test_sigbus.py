"""Segments of a journal that somebody cuts or removes while they are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.journal.claim import claim_journal
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Observed, Record
from otel_rl.recorder.journal.segments import segment_numbers
from otel_rl.recorder.journal.writer import Writer
from tests.recorder.journal.written import numbered, read_all, segment, steps

_CUTS = 20
_WRITE_WHEN_TOLD = """
import pathlib, sys
from otel_rl.recorder.journal.writer import Writer
from otel_rl.recorder.journal.records import Logged

writer = Writer(pathlib.Path("."), segment_bytes=1 << 20)
for n, _ in enumerate(sys.stdin):
    for step in range(50 * n, 50 * n + 50):
        writer.append(Logged(step, 0, {"loss": step / 3}))
    print(n, flush=True)
writer.close()
"""


def test_cut_while_it_is_written(tmp_path: Path) -> None:
    """A process whose segment is cut, 20 times, lives; each record is read, or the bytes that are gone are counted."""
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITE_WHEN_TOLD], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    reader = Reader(tmp_path, AnyRecord)
    read: list[Record] = []
    for cut in range(_CUTS):
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == f"{cut}\n"
        if cut % 2:
            read += read_all(reader)
        os.truncate(max(tmp_path.glob("*.seg")), 0)
    child.communicate("go\n", timeout=60)
    read += read_all(reader)

    assert child.returncode == 0
    assert steps(read) == sorted(set(steps(read)))
    assert steps(read)[-50:] == list(range(50 * _CUTS, 50 * _CUTS + 50))
    assert reader.skipped_bytes > 0


@pytest.mark.parametrize("already_read", [0, 3, 10])
def test_what_a_cut_destroyed(tmp_path: Path, already_read: int) -> None:
    """The reader counts the bytes that it had not read yet, and goes on behind them."""
    writer, reader = Writer(tmp_path), Reader(tmp_path, AnyRecord)
    ends = []
    for n in range(11):
        if n == 10:
            reader.read(already_read)
            os.truncate(segment(tmp_path, 1), ends[4])
        writer.append(Observed(n, 1, {"x": bytes(5000)}))
        ends.append(writer.position.offset)
    rest = [record.step for record in reader.read() if isinstance(record, Observed)]

    assert rest == [*range(already_read, 5), 10]
    assert reader.skipped_bytes == ends[9] - max(ends[4], reader_position(ends, already_read))


def test_a_cut_within_a_page(tmp_path: Path) -> None:
    """Bytes written behind a cut in the same page reach no file; a check finds and counts them."""
    writer = Writer(tmp_path)
    for record in numbered(5):
        writer.append(record)
    os.truncate(segment(tmp_path, 1), writer.position.offset)
    lost_from = writer.position.offset
    writer.append(numbered(1, first=5)[0])
    lost_to = writer.position.offset
    writer.check()
    writer.append(numbered(1, first=6)[0])
    reader = Reader(tmp_path, AnyRecord)

    assert steps(read_all(reader)) == [0, 1, 2, 3, 4, 6]
    assert reader.skipped_bytes == lost_to - lost_from


def test_a_cut_that_is_found_by_a_check(tmp_path: Path) -> None:
    """A check finds a cut behind the last record as well, and costs none of them."""
    writer = Writer(tmp_path)
    for record in numbered(3):
        writer.append(record)
    os.truncate(segment(tmp_path, 1), 1 << 20)
    writer.check()
    writer.append(numbered(1, first=3)[0])
    reader = Reader(tmp_path, AnyRecord)

    assert segment_numbers(tmp_path) == [1, 2]
    assert steps(read_all(reader)) == [0, 1, 2, 3]
    assert reader.skipped_bytes == 0


@pytest.mark.parametrize("cut_first", [False, True])
def test_a_removed_segment(tmp_path: Path, cut_first: bool) -> None:
    """A segment that was removed is written again: no record is lost; if it was cut before, that is counted."""
    writer = Writer(tmp_path)
    for record in numbered(5):
        writer.append(record)
    if cut_first:
        os.truncate(segment(tmp_path, 1), 0)
    segment(tmp_path, 1).unlink()
    if not cut_first:
        writer.append(numbered(1, first=5)[0])
    writer.check()
    writer.append(numbered(1, first=6)[0])
    reader = Reader(tmp_path, AnyRecord)
    found = steps(read_all(reader))

    assert found == ([6] if cut_first else [0, 1, 2, 3, 4, 5, 6])
    assert bool(reader.skipped_bytes) == cut_first


def test_a_removed_segment_that_was_full(tmp_path: Path) -> None:
    """A writer whose segment is gone when it needs the next one goes on in that one."""
    writer = Writer(tmp_path, segment_bytes=500)
    for record in numbered(3):
        writer.append(record)
    segment(tmp_path, 1).unlink()
    for record in numbered(30, first=3):
        writer.append(record)
    writer.close()

    assert steps(read_all(Reader(tmp_path, AnyRecord)))[-1] == 32


def test_a_cut_segment_is_closed(tmp_path: Path) -> None:
    """`close` touches nothing that is gone, and the reader counts what is."""
    writer = Writer(tmp_path)
    for record in numbered(3):
        writer.append(record)
    os.truncate(segment(tmp_path, 1), 0)
    writer.close()

    assert read_all(Reader(tmp_path, AnyRecord)) == []


def test_a_removed_journal(tmp_path: Path) -> None:
    """A process whose whole journal was removed takes it again, with all that is in memory."""
    claim = claim_journal(tmp_path, "rank0")
    writer = Writer(claim.path)
    for record in numbered(5):
        writer.append(record)
    shutil.rmtree(claim.path)
    claim.keep()
    writer.check()
    writer.append(Finished(1))

    assert is_held(claim.path)
    assert Reader(claim.path, AnyRecord).read() == [*numbered(5), Finished(1)]


def reader_position(ends: list[int], count: int) -> int:
    """Return the offset behind so many records."""
    return ends[count - 1] if count else 0

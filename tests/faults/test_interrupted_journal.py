"""Exceptions in the midst of writing a record: the record is in the journal or is not, and the next one always is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished
from otel_rl.recorder.journal.writer import Writer
from tests.faults.interrupting import each_line


def times(place: Path) -> list[int]:
    reader = Reader(place, AnyRecord)
    found = []
    while records := reader.read(final=True):
        found += [record.time for record in records if isinstance(record, Finished)]
    assert (reader.skipped_bytes, reader.lost_segments, reader.undecodable) == (0, 0, 0)
    return found


def test_a_record_after_an_interrupted_one(tmp_path: Path) -> None:
    """An interrupt at any line of `append`, a new segment included, costs at most the record that it interrupts."""
    writer = Writer(tmp_path, segment_bytes=1)
    sure: list[int] = []
    for n, _ in enumerate(each_line(lambda: writer.append(Finished(1)))):
        writer.append(Finished(1000 + n))
        sure.append(1000 + n)

    assert len(sure) > 30
    assert [time for time in times(tmp_path) if time != 1] == sure


def test_a_record_of_another_thread_after_an_interrupted_one(tmp_path: Path) -> None:
    """An interrupt at any line of `append` keeps no other thread from writing."""
    writer = Writer(tmp_path, segment_bytes=1)
    for _ in each_line(lambda: writer.append(Finished(1))):
        other = threading.Thread(target=writer.append, args=(Finished(2),), daemon=True)
        other.start()
        other.join(5)
        assert not other.is_alive()


def test_an_interrupted_end(tmp_path: Path) -> None:
    """An interrupt at any line of `close` leaves what a second call closes, with the record; then nothing is taken."""
    writers = [Writer(tmp_path)]
    writers[-1].append(Finished(0))

    def close() -> None:
        writers[-1].close()

    for n, _ in enumerate(each_line(close)):
        writers[-1].close()
        with pytest.raises(ValueError, match="closed"):
            writers[-1].append(Finished(-1))
        writers.append(Writer(tmp_path))
        writers[-1].append(Finished(n + 1))
    writers[-1].close()

    assert times(tmp_path) == list(range(len(writers)))

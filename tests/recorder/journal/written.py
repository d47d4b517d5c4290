"""Journals for the tests, and where their frames lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import Happened, Logged, Record, StepStarted
from otel_rl.recorder.journal.segments import MAGIC
from otel_rl.recorder.journal.writer import Writer

STEPS = TIMES = st.integers(0, 2**62 - 1)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
RECORDS = st.lists(
    st.builds(Logged, STEPS, TIMES, st.dictionaries(st.text(), NUMBERS, max_size=5))
    | st.builds(Happened, st.text(), TIMES, st.dictionaries(st.text(), NUMBERS | st.text() | st.booleans(), max_size=3))
    | st.builds(StepStarted, STEPS, TIMES, st.binary(max_size=200) | st.just(MAGIC) | st.just(MAGIC * 9)),
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


def read_all(reader: Reader[Record]) -> list[Record]:
    records: list[Record] = []
    while more := reader.read(final=True):
        records += more
    reader.close()
    return records


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Logged(number, 0, {"loss": number / 3}) for number in range(first, first + count)]


def steps(records: Sequence[Record]) -> list[int]:
    return [record.step for record in records if isinstance(record, Logged)]

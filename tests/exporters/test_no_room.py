"""Outputs that take nothing more: a disk that is full, and a pipe whose reader has gone."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_rl.export import Refused, Row, RunInfo, Table
from otel_rl.recorder.delivery.plugins import find_exporter
from tests.exporters import same_run
from tests.exporters.trackers import DOUBLE, JSONL, SIDECAR, SINGLE, Tracker, cases


@contextlib.contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size. The kernel takes what fits, then no more."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def contents(run: RunInfo) -> dict[Path, bytes]:
    """Return all files of a run that are not empty."""
    return {
        path: path.read_bytes() for path in Path(run.directory).rglob("*") if path.is_file() and path.stat().st_size
    }


@pytest.mark.parametrize("tracker", cases(JSONL, SINGLE, DOUBLE))
def test_a_batch_of_rows(tracker: Tracker, run: RunInfo) -> None:
    """One that does not fit leaves nothing behind, and can be retried."""
    rows = same_run.rows()
    with tracker.exporting(run) as exporter:
        exporter.export(rows[:1])
        before = contents(run)
        (size,) = map(len, before.values())
        with no_file_beyond(size + 100), pytest.raises(OSError, match="No space left"):
            exporter.export(rows[1:])
        assert contents(run) == before
        exporter.export(rows[1:])

    assert tracker.points(Path(run.directory)) == same_run.points(tracker)


def test_a_table(run: RunInfo) -> None:
    """One that does not fit raises, leaves the old file unchanged and no other file, and can be retried."""
    large = Table("t", 0, 0, ("a",), (("x" * 10_000,),), attempt=1)
    with SIDECAR.exporting(run) as exporter:
        exporter.export([Table("t", 0, 0, ("a",), ((1,),))])
        before = contents(run)
        with no_file_beyond(1000), pytest.raises(OSError, match="File too large"):
            exporter.export([large])
        assert contents(run) == before
        exporter.export([large])

    assert SIDECAR.tables(Path(run.directory)) == [(0, ("a",), [["x" * 10_000]])]


class Unbuffered:
    """A text stream over a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, text: str) -> None:
        self._pipe.write(text.encode())

    def flush(self) -> None:
        self._pipe.flush()


@pytest.mark.parametrize("name", ["console", "stdout"])
def test_standard_output(name: str, run: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its reader has gone, the rows are refused: they will never be taken."""
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "stdout", Unbuffered(writing))

    with pytest.raises(Refused):
        find_exporter(name)(run).export([Row(0, 0, {"loss": 1})])

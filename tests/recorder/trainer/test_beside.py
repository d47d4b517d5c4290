"""Several runs that one process records at once, as for trackers with several open runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.trainer.current import is_open
from otel_rl.recorder.trainer.run import Run
from otel_rl.recorder.trainer.start import init_beside
from tests.recorder.trainer.reading import RecordsOf, logged


@pytest.fixture
def beside(recording: Run, tmp_path: Path) -> Iterator[Run]:
    """A second run of this process."""
    run = init_beside(id="other", dir=str(tmp_path / "other"), agent="off", exporters=[], quiet=True)
    yield run
    run.finish(0)


def test_each_has_its_own_values(recording: Run, beside: Run, records_of: RecordsOf) -> None:
    """The run of the process stays what `current` returns."""
    assert otel_rl.current() is recording
    recording.log({"loss": 1.0}, step=0)
    beside.log({"loss": 3.0}, step=0)

    assert logged(records_of(recording)) == [(0, {"loss": 1.0})]
    assert logged(records_of(beside)) == [(0, {"loss": 3.0})]


def test_the_end_of_one_ends_nothing_of_the_other(recording: Run, beside: Run) -> None:
    """Then the oldest one that is left is the run of the process."""
    recording.finish(0)

    assert otel_rl.current() is beside
    assert is_open(beside)
    assert not is_open(recording)
    beside.finish(0)
    assert otel_rl.current() is None

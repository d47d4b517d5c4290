"""One run in every tracker, each read back by its own reader: what goes in is what comes out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_rl.export import RunInfo
from tests.exporters import same_run
from tests.exporters.trackers import MLFLOW, Tracker, cases, that_read
from tests.real_parts import needs

Written = Callable[[Tracker], Path]

OF_VALUES = cases(*(one for one in that_read("points") if one is not MLFLOW))
OF_VALUES += [pytest.param(MLFLOW, marks=[needs("mlflow"), pytest.mark.slow], id="mlflow")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The function that returns the directory of the run in a tracker."""

    @functools.cache
    def directory(tracker: Tracker) -> Path:
        place = tmp_path_factory.mktemp(tracker.exporter)
        tracker.deliver(RunInfo("run-7", "grpo-gsm8k", "baseline", str(place)), same_run.items())
        return place

    return directory


def test_what_is_handed_over() -> None:
    """The run is what it claims to be: 200 steps, 500 names of which no row has all, parameters, and two tables."""
    rows = same_run.rows()

    assert [row.step for row in rows] == list(range(200))
    assert len({name for row in rows for name in row.values}) == 500
    assert max(len(row.values) for row in rows) < 100
    assert [type(item).__name__ for item in same_run.items()].count("Table") == 2
    assert same_run.items() == same_run.items()


@pytest.mark.parametrize("tracker", OF_VALUES)
def test_values(tracker: Tracker, written: Written) -> None:
    """Every value of every step is there, in order, bit for bit, and no other."""
    assert tracker.points(written(tracker)) == same_run.points(tracker)


@pytest.mark.parametrize("tracker", cases(*that_read("params")))
def test_params(tracker: Tracker, written: Written) -> None:
    """Every hyper-parameter is there, of its own type."""
    expected = {name: tracker.param(value) for name, value in same_run.PARAMS.items()}

    assert same_run.exact_values(tracker.params(written(tracker))) == same_run.exact_values(expected)


@pytest.mark.parametrize("tracker", cases(*that_read("tables")))
def test_tables(tracker: Tracker, written: Written) -> None:
    """Every cell of every table is there, at its step."""
    assert same_run.exact_tables(tracker.tables(written(tracker))) == same_run.exact_tables(same_run.shown(tracker))

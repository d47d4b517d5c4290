"""A restarted run in trackio, read back from its database."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_rl.export import Params, Row, RunInfo
from tests.exporters.trackers import TRACKIO, bits
from tests.real_parts import needs

pytestmark = [needs("trackio"), pytest.mark.slow]


def test_a_restarted_run_goes_on(run: RunInfo) -> None:
    """It has the same name, and its rows follow; parameters that come late are a table."""
    TRACKIO.deliver(run, [Row(0, 0, {"loss": 1.5}), Params(0, {"lr": 0.5}), Row(1, 1, {"loss": 2.5})])
    TRACKIO.deliver(run, [Row(2, 2, {"loss": 3.5})])
    place = Path(run.directory)

    assert TRACKIO.points(place)["loss"] == [(n, bits(n + 1.5)) for n in range(3)]
    assert TRACKIO.stored(place, "SELECT DISTINCT run_name FROM metrics") == [("run-7",)]
    assert [(columns, rows) for _, columns, rows in TRACKIO.tables(place)] == [(("name", "value"), [["lr", "0.5"]])]


def test_parameters_of_an_earlier_attempt_stay(run: RunInfo) -> None:
    """Trackio would replace the config; and it takes no name that begins with an underscore."""
    TRACKIO.deliver(run, [Params(0, {"lr": 0.5, "_beta": 0.1}), Row(0, 0, {"loss": 1.5})])
    TRACKIO.deliver(run, [Params(0, {"lr": 0.25}), Row(1, 1, {"loss": 2.5})])

    assert TRACKIO.params(Path(run.directory)) == {"lr": 0.25, "%5Fbeta": 0.1}

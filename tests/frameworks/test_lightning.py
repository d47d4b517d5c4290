"""Lightning, for real."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "lightning_fit.py")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Lightning's own CSV file and the run are."""
    place: Path = tmp_path_factory.mktemp("lightning")
    run([sys.executable, _SCRIPT], place)
    return place


def test_rows_are_what_it_logged(directory: Path) -> None:
    """At its own steps, number by number."""
    with next((directory / "own").rglob("metrics.csv")).open() as file:
        told = [{name: float(text) for name, text in line.items() if text} for line in csv.DictReader(file)]
    rows = {row["step"]: row["values"] for row in rows_of(directory / "runs" / "p" / "lit")}

    assert len(told) >= 8
    for values in told:
        step = int(values.pop("step"))
        assert {name: rows[step][name] for name in values} == pytest.approx(values)  # type: ignore[index]


def test_phases(directory: Path) -> None:
    """Two batches of accumulated gradients are one step; validation is in the last step of its epoch."""
    spans = [item for item in items_of(directory / "runs" / "p" / "lit") if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = {n: [span.name for span in spans if roots.get(span.parent_id) == n] for n in roots.values()}

    assert list(phases) == list(range(8))
    assert phases[0] == ["training_step", "backward", "training_step", "backward", "rl.train"]
    assert phases[3] == [*phases[0], "validation"]


def test_hyper_parameters(directory: Path) -> None:
    """The module's own."""
    (params,) = (item for item in items_of(directory / "runs" / "p" / "lit") if isinstance(item, Params))

    assert params.values["lr"] == 0.1

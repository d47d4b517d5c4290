"""Lightning, for real: with otel-rl's logger and callback, and without a line of otel-rl."""

from __future__ import annotations

import csv
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from tests.frameworks.results import Number, compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = Path(__file__).with_name("examples") / "lightning_fit.py"
_TOLD = {"OMP_NUM_THREADS": "1", "OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "lit", "OTEL_RL_HARDWARE": "0"}


@pytest.fixture(scope="module", params=["lines", "no lines"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Lightning's own CSV file and the run are."""
    place: Path = tmp_path_factory.mktemp("lightning")
    command = [sys.executable, str(_SCRIPT)]
    if request.param == "no lines":
        text = "".join(line for line in _SCRIPT.read_text().splitlines(keepends=True) if "OtelRl" not in line)
        command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-c", text]
    run(command, place, **_TOLD)
    return place


def wrote(directory: Path) -> dict[Number, float]:
    """Return what is in Lightning's own file, by step and name."""
    with next((directory / "own").rglob("metrics.csv")).open() as file:
        lines = [{name: float(text) for name, text in line.items() if text} for line in csv.DictReader(file)]
    return {(int(line["step"]), name): value for line in lines for name, value in line.items() if name != "step"}


def test_rows_are_what_it_logged(directory: Path) -> None:
    """At its own steps, number by number, of `fit` and of `validate` and `test` around it."""
    run_dir = directory / "runs" / "p" / "lit"
    found = compared(wrote(directory), rows_of(run_dir))
    ran = "validate, fit with accumulated gradients, test, on a CPU"
    coverage = phase_coverage(run_dir)
    keep("lightning", version("lightning"), ran, found, coverage, explained="users choose the names")

    assert found.different == []
    assert found.names == {"epoch", "loss", "val_loss", "test_loss"}
    assert [path.name for path in (directory / "runs" / "p").iterdir()] == ["lit"]


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
    (params, *_) = (item for item in items_of(directory / "runs" / "p" / "lit") if isinstance(item, Params))

    assert params.values["lr"] == 0.1

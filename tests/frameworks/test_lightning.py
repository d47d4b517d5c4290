"""Lightning, for real: with otel-rl's logger and callback, and without a line of otel-rl."""

from __future__ import annotations

import csv
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.recorded import EXAMPLES, Recorded, launched, only, plain, told_by
from tests.frameworks.results import by_step

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(500)
_SCRIPT = "lightning_fit.py"
_TOLD = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "lit"}


@pytest.fixture(scope="module", params=["lines", "no lines"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Lightning's own CSV file and the run are."""
    place: Path = tmp_path_factory.mktemp("lightning")
    if request.param == "lines":
        plain(place, _SCRIPT, **_TOLD)
    else:
        lines = (EXAMPLES / _SCRIPT).read_text().splitlines(keepends=True)
        launched(place, "-c", "".join(line for line in lines if "OtelRl" not in line), **_TOLD)
    return place


@pytest.fixture
def recorded(directory: Path) -> Recorded:
    """The run; there is one."""
    return only(directory / "runs" / "p")


def test_rows_are_what_it_logged(directory: Path, recorded: Recorded) -> None:
    """At its own steps, number by number, of `fit` and of `validate` and `test` around it."""
    with next((directory / "own").rglob("metrics.csv")).open() as file:
        lines = [{name: float(text) for name, text in line.items() if text} for line in csv.DictReader(file)]
    wrote = by_step((int(line.pop("step")), line) for line in lines)
    ran = "validate, fit with accumulated gradients, test, on a CPU; users choose the names"
    found = recorded.agrees(wrote, "lightning", version("lightning"), ran, users_names=True)

    assert found.names == {"epoch", "loss", "val_loss", "test_loss"}
    assert recorded.directory.name == "lit"


def test_phases(recorded: Recorded) -> None:
    """Two batches of accumulated gradients are one step; validation is in the last step of its epoch."""
    accumulated = ["training_step", "backward", "training_step", "backward", "optimizer_step"]

    assert list(recorded.phases) == list(range(8))
    assert recorded.phases[0] == accumulated
    assert recorded.phases[3] == [*accumulated, "validation"]


def test_two_processes(tmp_path: Path) -> None:
    """All ranks that Lightning starts are in one run, with the values of the first one, and no line says otherwise."""
    lines = (
        (EXAMPLES / _SCRIPT).read_text().replace('"cpu"', '"cpu", devices=2, strategy="ddp"').splitlines(keepends=True)
    )
    (tmp_path / "fit.py").write_text("".join(line for line in lines if "OtelRl" not in line))
    errors = told_by(tmp_path, "fit.py", OTEL_RL_PROJECT="p")
    recorded = only(tmp_path / "runs" / "p")
    ranks = Counter(span.attributes["rl.rank"] for span in recorded.spans if span.name == "backward")

    assert ranks == {0: 8, 1: 8}
    assert {"loss", "val_loss", "test_loss"} <= {name for row in recorded.rows.values() for name in row}
    assert "recorded nothing" not in errors


def test_hyper_parameters(recorded: Recorded) -> None:
    """The module's own."""
    assert recorded.params["lr"] == 0.1

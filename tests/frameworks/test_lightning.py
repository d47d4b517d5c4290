"""Lightning, for real: with otel-rl's logger and callback, and without a line of otel-rl."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.collector import free_port
from tests.frameworks.recorded import EXAMPLES, LAUNCHER, Recorded, launched, only, plain, told_by
from tests.frameworks.results import by_step
from tests.processes import start

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


def in_two_processes(place: Path, devices: int, nodes: int) -> str:
    """Write the script without a line of otel-rl, for two processes; return its name."""
    how = f'"cpu", devices={devices}, num_nodes={nodes}, strategy="ddp"'
    lines = (EXAMPLES / _SCRIPT).read_text().replace('"cpu"', how).splitlines(keepends=True)
    (place / "fit.py").write_text("".join(line for line in lines if "OtelRl" not in line))
    return "fit.py"


def check_ranks(recorded: Recorded) -> None:
    """Check that both ranks are in the run, with the values of the first one."""
    ranks = Counter(span.attributes["rl.rank"] for span in recorded.spans if span.name == "backward")
    assert ranks == {0: 8, 1: 8}
    assert {"loss", "val_loss", "test_loss"} <= {name for row in recorded.rows.values() for name in row}


def test_two_processes(tmp_path: Path) -> None:
    """All ranks that Lightning starts are in one run, and no line says otherwise."""
    errors = told_by(tmp_path, in_two_processes(tmp_path, devices=2, nodes=1), OTEL_RL_PROJECT="p")

    check_ranks(only(tmp_path / "runs" / "p"))
    assert "recorded nothing" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("is_torchrun", [True, False], ids=["torchrun", "NODE_RANK"])
def test_two_nodes(tmp_path: Path, is_torchrun: bool) -> None:
    """All ranks are in one run, by torchrun and by Lightning's own variables; both nodes are this machine."""
    script, port = in_two_processes(tmp_path, devices=1, nodes=2), str(free_port())
    nodes = []
    for node in ("0", "1"):
        torchrun = ("-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", node)
        torchrun += ("--master-addr", "127.0.0.1", "--master-port", port)
        told = {"NODE_RANK": node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [*LAUNCHER, "--", sys.executable, *(torchrun if is_torchrun else ()), script]
        environment = {"OTEL_RL_PROJECT": "p", "OTEL_RL_HARDWARE": "false"}
        nodes.append(start(command, tmp_path, **environment, **({} if is_torchrun else told)))

    said = [node.communicate(timeout=400) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    check_ranks(only(tmp_path / "runs" / "p"))


def test_hyper_parameters(recorded: Recorded) -> None:
    """The module's own."""
    assert recorded.params["lr"] == 0.1

# /// script
# dependencies = ["ray[train]==2.60.0", "torch"]
# ///
"""Ray Train, for real: a `TorchTrainer` with a worker process."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.frameworks.charted import flat
from tests.frameworks.recorded import EXAMPLES, Recorded, launched, plain
from tests.frameworks.results import Compared, Values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_RAY = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300"}
_NO_CODE = "from otel_rl.frameworks.ray_train import recorded\n"
_ONE_LINE = 'recorded(train_loop, project="p", id="loop", quiet=True, hardware=False)'


def check(output: str, recorded: Recorded) -> Compared:
    """Compare what Ray's result holds, as the example prints it, with the rows, at the numbers of the reports."""
    wrote: Values = {step: dict(flat(told)) for step, told in enumerate(json.loads(output.splitlines()[-1]), 1)}
    found = recorded.agrees(wrote, "ray_train", version("ray"), "TorchTrainer, 3 reports", users_names=True)
    assert found.steps == [1, 2, 3]
    return found


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Recorded]:
    """The output of the example, and its run."""
    place: Path = tmp_path_factory.mktemp("ray_train")
    return plain(place, "ray_train_loop.py", **_RAY), Recorded(place / "runs" / "p" / "loop")


def test_rows_are_what_it_reported(training: tuple[str, Recorded]) -> None:
    """Number by number."""
    assert check(*training).names == {"loss", "epoch", "eval/accuracy"}


def test_phases(training: tuple[str, Recorded]) -> None:
    """The loop's own time, and each report with what Ray times in it."""
    steps = {span.trace_id: span.attributes["rl.loop.iteration"] for span in training[1].roots}

    for step in (1, 2, 3):
        of_step = sorted(span.name for span in training[1].spans if steps[span.trace_id] == step)
        assert of_step == ["checkpoint_sync", "checkpoint_transfer", "report", "rl.loop", "train_loop"]


def test_parameters(training: tuple[str, Recorded]) -> None:
    """The configuration of the loop."""
    assert training[1].params["lr"] == 0.1


def test_without_code_changes(tmp_path: Path) -> None:
    """`otel-rl run` records the same, from two workers."""
    script = (EXAMPLES / "ray_train_loop.py").read_text().replace(_NO_CODE, "").replace(_ONE_LINE, "train_loop")
    script = script.replace("num_workers=1", "num_workers=2").replace("num_cpus=2", "num_cpus=3")
    (tmp_path / "train.py").write_text(script)

    output = launched(tmp_path, "train.py", OTEL_RL_PROJECT="p", OTEL_RL_RUN_ID="plain", **_RAY)

    check(output, Recorded(tmp_path / "runs" / "p" / "plain"))

# /// script
# dependencies = ["ray[train]==2.60.0", "torch"]
# ///
"""Ray Train, for real: a `TorchTrainer` with a worker process."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from otel_rl.integrations.recording import flat
from tests.frameworks.results import Compared, compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_EXAMPLES = Path(__file__).with_name("examples")
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300"}
_NO_CODE = "from otel_rl.integrations.ray_train import recorded\n"
_ONE_LINE = 'recorded(train_loop, project="p", id="loop", quiet=True, hardware=False)'


def found_in(output: str, run_dir: Path) -> Compared:
    """Compare what Ray's result holds, as the example prints it, with the rows."""
    reported = json.loads(output.splitlines()[-1])
    wrote = {(step, name): value for step, told in enumerate(reported, 1) for name, value in flat(told)}
    return compared(wrote, rows_of(run_dir))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of the example, and its run."""
    place: Path = tmp_path_factory.mktemp("ray_train")
    output = run([sys.executable, str(_EXAMPLES / "ray_train_loop.py")], place, **_RAY)
    return output, place / "runs" / "p" / "loop"


def test_rows_are_what_it_reported(recorded: tuple[str, Path]) -> None:
    """At the numbers of the reports, number by number."""
    found = found_in(*recorded)

    assert (found.different, found.steps) == ([], [1, 2, 3])
    assert found.names == {"loss", "epoch", "eval/accuracy"}
    keep("ray_train", version("ray"), "TorchTrainer, 3 reports", found, phase_coverage(recorded[1]))


def test_phases(recorded: tuple[str, Path]) -> None:
    """The loop's own time, and each report with what Ray times in it."""
    spans = [item for item in items_of(recorded[1]) if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    traces = {span.trace_id: roots[span.span_id] for span in spans if span.name == "rl.loop"}

    for step in (1, 2, 3):
        of_step = sorted(span.name for span in spans if traces[span.trace_id] == step)
        assert of_step == ["checkpoint_sync", "checkpoint_transfer", "report", "rl.loop", "train_loop"]


def test_parameters(recorded: tuple[str, Path]) -> None:
    """The configuration of the loop."""
    (params,) = (item for item in items_of(recorded[1]) if isinstance(item, Params))

    assert params.values["lr"] == 0.1


def test_without_code_changes(tmp_path: Path) -> None:
    """`otel-rl run` records the same, from two workers."""
    script = (_EXAMPLES / "ray_train_loop.py").read_text().replace(_NO_CODE, "").replace(_ONE_LINE, "train_loop")
    script = script.replace("num_workers=1", "num_workers=2").replace("num_cpus=2", "num_cpus=3")
    (tmp_path / "train.py").write_text(script)
    settings = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "plain", "OTEL_RL_HARDWARE": "false"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "train.py"]

    found = found_in(run(command, tmp_path, **_RAY, **settings), tmp_path / "runs" / "p" / "plain")

    assert (found.different, found.steps) == ([], [1, 2, 3])

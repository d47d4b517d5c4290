# /// script
# dependencies = ["ray[rllib]==2.60.0", "torch"]
# ///
"""RLlib's PPO on CartPole, for real."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from otel_rl.semconv.drift import sorted_out
from tests.frameworks.results import Compared, compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_EXAMPLE = Path(__file__).with_name("examples") / "rllib_ppo.py"
_SETTINGS = {
    "OTEL_RL_PROJECT": "p",
    "OTEL_RL_RUN_ID": "ppo",
    "OTEL_RL_HARDWARE": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_NOT_RECORDED = {"pid", "timestamp"}


def found_in(output: str, run_dir: Path) -> Compared:
    """Compare the results that the example prints with the rows."""
    results = json.loads(output.splitlines()[-1], parse_constant=str)  # rows have the text NaN
    named = ((step, name, value) for step, told in enumerate(results, 1) for name, value in told.items())
    wrote = {(step, name): value for step, name, value in named if name not in _NOT_RECORDED}
    return compared(wrote, rows_of(run_dir))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of the example, and its run."""
    place: Path = tmp_path_factory.mktemp("rllib")
    return run([sys.executable, str(_EXAMPLE)], place, **_SETTINGS), place / "runs" / "p" / "ppo"


def test_rows_are_the_results(recorded: tuple[str, Path]) -> None:
    """At RLlib's training iterations, number by number."""
    found = found_in(*recorded)

    assert (found.different, found.steps) == ([], [1, 2, 3, 4])
    assert sorted_out(found.names, "rllib").unknown == []
    keep("rllib", version("ray"), "PPO on CartPole, 4 iterations", found, phase_coverage(recorded[1]))


def test_phases(recorded: tuple[str, Path]) -> None:
    """RLlib's timers, the first evaluation in the second iteration."""
    spans = [item for item in items_of(recorded[1]) if isinstance(item, Span)]
    steps = {span.trace_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = {(steps[span.trace_id], span.attributes.get("rl.phase")) for span in spans if span.trace_id in steps}

    for step in (1, 2, 3, 4):
        assert {(step, "env_runner_sampling_timer"), (step, "learner_update_timer")} <= phases
    assert [step for step in (1, 2, 3, 4) if (step, "evaluation_iteration") in phases] == [2, 4]


def test_parameters(recorded: tuple[str, Path]) -> None:
    """The algorithm's configuration."""
    values = {}
    for item in items_of(recorded[1]):
        values |= item.values if isinstance(item, Params) else {}

    assert values["num_epochs"] == 2


def test_without_code_changes(tmp_path: Path) -> None:
    """`otel-rl run` records the same."""
    script = _EXAMPLE.read_text().replace("    .callbacks(OtelRlCallback)\n", "")
    (tmp_path / "train.py").write_text(script.replace("from otel_rl.integrations.rllib import OtelRlCallback\n", ""))
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "train.py"]

    found = found_in(run(command, tmp_path, **_SETTINGS), tmp_path / "runs" / "p" / "ppo")

    assert (found.different, found.steps) == ([], [1, 2, 3, 4])

# /// script
# dependencies = ["ray[rllib]==2.60.0", "torch"]
# ///
"""RLlib's PPO on CartPole, for real."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.frameworks.drift import sorted_out
from tests.frameworks.recorded import EXAMPLES, Recorded, launched, plain
from tests.frameworks.results import Values, compared, keep, phase_coverage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_TOLD = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "ppo"}
_NOT_RECORDED = {"pid", "timestamp"}


def results(output: str) -> Values:
    """Return the results that the example prints, by RLlib's training iterations."""
    found = enumerate(json.loads(output.splitlines()[-1], parse_constant=str), 1)  # rows have the text NaN
    return {step: {name: one for name, one in of.items() if name not in _NOT_RECORDED} for step, of in found}


def check(output: str, recorded: Recorded) -> None:
    """Compare the results with the rows."""
    found = recorded.agrees(results(output), "rllib", version("ray"), "PPO on CartPole, 4 iterations")
    assert found.steps == [1, 2, 3, 4]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Recorded]:
    """The output of the example, and its run."""
    place: Path = tmp_path_factory.mktemp("rllib")
    return plain(place, "rllib_ppo.py", **_TOLD), Recorded(place / "runs" / "p" / "ppo")


def test_rows_are_the_results(training: tuple[str, Recorded]) -> None:
    """Number by number."""
    check(*training)


def test_phases(training: tuple[str, Recorded]) -> None:
    """RLlib's timers, the first evaluation in the second iteration."""
    steps = {span.trace_id: span.attributes["rl.loop.iteration"] for span in training[1].roots}
    spans = [span for span in training[1].spans if span.trace_id in steps]
    phases = {(steps[span.trace_id], span.attributes.get("rl.phase")) for span in spans}

    for step in (1, 2, 3, 4):
        assert {(step, "env_runner_sampling_timer"), (step, "learner_update_timer")} <= phases
    assert [step for step in (1, 2, 3, 4) if (step, "evaluation_iteration") in phases] == [2, 4]


def test_parameters(training: tuple[str, Recorded]) -> None:
    """The algorithm's configuration."""
    assert training[1].params["num_epochs"] == 2


def test_without_code_changes(tmp_path: Path) -> None:
    """`otel-rl run` records the same."""
    script = (EXAMPLES / "rllib_ppo.py").read_text().replace("    .callbacks(OtelRlCallback)\n", "")
    (tmp_path / "train.py").write_text(script.replace("from otel_rl.frameworks.rllib import OtelRlCallback\n", ""))

    check(launched(tmp_path, "train.py", **_TOLD), Recorded(tmp_path / "runs" / "p" / "ppo"))


def test_the_old_api_stack(tmp_path: Path) -> None:
    """The same rows and phases, with that stack's own names."""
    script = (EXAMPLES / "rllib_ppo.py").read_text().replace("train_batch_size_per_learner", "train_batch_size")
    old = "enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False"
    (tmp_path / "train.py").write_text(script.replace("    .env_runners(", f"    .api_stack({old}).env_runners("))
    output, recorded = plain(tmp_path, "train.py", **_TOLD), Recorded(tmp_path / "runs" / "p" / "ppo")
    every = ["restore_workers", "sample", "load", "learn", "synch_weights"]
    evaluation = ["restore_eval_workers", "evaluation_iteration"]

    found = compared(results(output), recorded.rows)
    ran = "PPO on CartPole, 4 iterations"
    keep("RLlib (old API stack)", version("ray"), ran, found, phase_coverage(recorded.spans))
    assert (found.different, found.steps) == ([], [1, 2, 3, 4])
    assert sorted_out(found.names, "rllib").unknown == []
    assert recorded.phases == {1: every, 2: every + evaluation, 3: every, 4: every + evaluation}

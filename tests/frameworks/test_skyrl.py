"""SkyRL's `Tracking` and `Timer`, for real, called as its trainer does; the trainer itself needs GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.frameworks.recorded import Recorded, launched, only
from tests.frameworks.results import Values, compared

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Values, Recorded]:
    """The log of a training under `otel-rl run`, by step, and the run."""
    place: Path = tmp_path_factory.mktemp("skyrl")
    output = launched(place, "skyrl_loop.py", options=["--instrument", "skyrl"], OTEL_RL_RUN_ID="skyrl")
    logged = [eval(line[5:]) for line in output.splitlines() if line.startswith("TOLD ")]
    return dict(enumerate(logged, 1)), only(place / "runs" / "p")


def test_rows_are_what_skyrl_logged(told: tuple[Values, Recorded]) -> None:
    """At its steps, number by number."""
    logged, recorded = told

    assert list(recorded.rows) == list(logged) == [1, 2, 3, 4]
    assert compared(logged, recorded.rows).different == []


def test_phases(told: tuple[Values, Recorded]) -> None:
    """Its timings are under their step, in coroutines too, and so is the evaluation after it."""
    spans = told[1].spans
    names = {span.span_id: str(span.attributes.get("rl.phase", "rl.loop")) for span in spans}
    first = [span for span in spans if span.trace_id == spans[0].trace_id]

    assert [(names.get(s.parent_id), names[s.span_id]) for s in first] == [
        ("rl.loop", "generate"),
        ("train_critic_and_policy", "policy_train"),
        ("rl.loop", "train_critic_and_policy"),
        ("rl.loop", "eval"),
        (None, "rl.loop"),
    ]

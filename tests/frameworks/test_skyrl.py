"""SkyRL's `Tracking` and `Timer`, for real, called as its trainer does; the trainer itself needs GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_rl.export import Span
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "skyrl_loop.py")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, float]], Path]:
    """The log of a training under `otel-rl run`, and the run directory."""
    place: Path = tmp_path_factory.mktemp("skyrl")
    environment = {"OTEL_RL_RUN_ID": "skyrl", "OTEL_RL_HARDWARE": "false"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "skyrl", "--", sys.executable, _SCRIPT]
    output = run(command, place, **environment)
    (found,) = (place / "runs" / "p").iterdir()
    return [eval(line[5:]) for line in output.splitlines() if line.startswith("TOLD ")], found


def test_rows_are_what_skyrl_logged(told: tuple[list[dict[str, float]], Path]) -> None:
    """At its steps, number by number."""
    logged, directory = told
    rows = {row["step"]: row["values"] for row in rows_of(directory)}

    assert list(rows) == [1, 2, 3, 4]
    for step, values in enumerate(logged, 1):
        assert {name: rows[step][name] for name in values} == values  # type: ignore[index]


def test_phases(told: tuple[list[dict[str, float]], Path]) -> None:
    """Its timings are under their step, in coroutines too, and so is the evaluation after it."""
    spans = [item for item in items_of(told[1]) if isinstance(item, Span)]
    names = {span.span_id: str(span.attributes.get("rl.phase", "rl.loop")) for span in spans}
    first = [span for span in spans if span.trace_id == spans[0].trace_id]

    assert [(names.get(s.parent_id), names[s.span_id]) for s in first] == [
        ("rl.loop", "generate"),
        ("train_critic_and_policy", "policy_train"),
        ("rl.loop", "train_critic_and_policy"),
        ("rl.loop", "eval"),
        (None, "rl.loop"),
    ]

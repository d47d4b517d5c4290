"""SkyRL's `Tracking` and `Timer`, for real, called as its trainer does; the trainer itself needs GPUs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.export import Span
from tests.processes import items_of, rows_of, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(280)
_TRAINER = """
import asyncio
from skyrl.train.utils.tracking import Tracking
from skyrl.train.utils.utils import Timer

class Trainer:
    def __init__(self):
        self.tracker = Tracking("p", "ppo", "console")
        self.global_step = 0
        self.all_timings = {}
    async def train(self):
        for self.global_step in range(1, 5):
            with Timer("step", self.all_timings):
                async with Timer("generate", self.all_timings):
                    await asyncio.sleep(0.01)
                with Timer("train_critic_and_policy", self.all_timings):
                    with Timer("policy_train", self.all_timings):
                        pass
            with Timer("eval", self.all_timings):
                pass
            payload = {"reward/avg_pass_at_1": self.global_step / 7}
            payload |= {f"timing/{name}": seconds for name, seconds in self.all_timings.items()}
            print("TOLD", payload)
            self.tracker.log(payload, step=self.global_step, commit=True)
            self.all_timings = {}
        self.tracker.finish()

asyncio.run(Trainer().train())
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, float]], Path]:
    """What a training under `otel-rl run` logged, and where the run is."""
    place: Path = tmp_path_factory.mktemp("skyrl")
    environment = {"OTEL_RL_RUN_ID": "skyrl", "OTEL_RL_HARDWARE": "false"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "skyrl", "--", sys.executable, "-c"]
    output = run([*command, _TRAINER], place, **environment)
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
    """What it times is under its step, in coroutines too, and so is the evaluation behind it."""
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

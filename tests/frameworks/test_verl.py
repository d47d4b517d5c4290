"""verl's `Tracking` and `marked_timer`, for real, called as its trainer does; the trainer itself needs GPUs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.export import Params, Span
from tests.processes import items_of, rows_of, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(280)
_TRAINER = """
import time
from verl.utils.debug import marked_timer
from verl.utils.tracking import Tracking

class Trainer:
    def fit(self):
        logger = Tracking("p", "ppo", ["file", "tensorboard"], {"trainer": {"total_epochs": 2}, "lr": 0.5})
        self.global_steps = 10  # resumed
        for _ in range(5):
            self.global_steps += 1
            metrics, timing_raw = {}, {}
            with marked_timer("start_profile", timing_raw):
                pass
            with marked_timer("step", timing_raw):
                with marked_timer("gen", timing_raw, color="red"):
                    time.sleep(0.02)
                with marked_timer("reward", timing_raw, color="yellow"):
                    pass
                with marked_timer("old_log_prob", timing_raw, color="blue"):
                    pass
                with marked_timer("adv", timing_raw, color="brown"):
                    pass
                with marked_timer("update_actor", timing_raw, color="red"):
                    time.sleep(0.01)
            with marked_timer("testing", timing_raw, color="green"):
                pass
            metrics |= {f"timing_s/{name}": seconds for name, seconds in timing_raw.items()}
            metrics |= {"critic/score/mean": self.global_steps / 7, "actor/pg_loss": -1.5, "note": "text"}
            metrics.pop("note")
            logger.log(data=metrics, step=self.global_steps)
        logger.finish()

Trainer().fit()
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`, with verl's own file backend."""
    place: Path = tmp_path_factory.mktemp("verl")
    told = {"OTEL_RL_RUN_ID": "verl", "OTEL_RL_HARDWARE": "false", "VERL_FILE_LOGGER_ROOT": "own"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "verl", "--", sys.executable, "-c", _TRAINER]
    run(command, place, **told)
    return place


def run_dir(directory: Path) -> Path:
    (found,) = (directory / "runs" / "p").iterdir()
    return found


def test_rows_are_what_verl_logged(directory: Path) -> None:
    """At verl's steps, number by number, as its own file has them."""
    (file,) = (path for path in (directory / "own").rglob("*") if path.is_file())
    told = [json.loads(line) for line in file.read_text().splitlines()]
    rows = {row["step"]: row["values"] for row in rows_of(run_dir(directory))}

    assert [line["step"] for line in told] == list(rows) == list(range(11, 16))
    for line in told:
        assert {name: rows[line["step"]][name] for name in line["data"]} == line["data"]  # type: ignore[index]


def test_phases(directory: Path) -> None:
    """What verl times is under the root of its step, also what it times after its own timer of the step."""
    spans = [item for item in items_of(run_dir(directory)) if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = {n: [str(s.attributes["rl.phase"]) for s in spans if roots.get(s.parent_id) == n] for n in roots.values()}
    timed = ["gen", "reward", "old_log_prob", "adv", "update_actor", "testing"]

    assert list(phases) == list(range(11, 16))
    assert phases[11] == [*timed, "start_profile"]
    assert phases[15] == timed


def test_configuration(directory: Path) -> None:
    """Flattened."""
    (params,) = (item for item in items_of(run_dir(directory)) if isinstance(item, Params))

    assert params.values == {"trainer.total_epochs": 2, "lr": 0.5}

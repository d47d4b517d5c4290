"""Hooks into frameworks that are on no package index: modules with the shape that theirs have, written by the tests.

ROLL: `roll/utils/tracking.py` at e25f5fa; NeMo-RL: `nemo_rl/utils/logger.py` at 0275e75.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.export import Params
from tests.processes import items_of, rows_of, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)
_ROLL = """
tracker_registry = {}

class BaseTracker:
    def log(self, values, step, **kwargs): pass
    def finish(self): pass

class StdoutTracker(BaseTracker):
    def __init__(self, config, **kwargs): pass
    def log(self, values, step=None, **kwargs): print("TOLD", step, sorted(values))

def create_tracker(tracker_name, config, **kwargs):
    if not tracker_name:
        return BaseTracker()
    return tracker_registry[tracker_name](config, **kwargs)

tracker_registry["stdout"] = StdoutTracker
"""
_NEMO = """
class TensorboardLogger:
    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        print("TOLD", step, prefix, sorted(metrics))
    def log_hyperparams(self, params): pass
    def log_histogram(self, histogram, step, name): pass
    def log_plot(self, figure, step, name): pass

class Logger:
    def __init__(self, cfg):
        self.loggers = [TensorboardLogger()] if cfg["tensorboard_enabled"] else []
    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        for logger in self.loggers:
            logger.log_metrics(metrics, step, prefix, step_metric, step_finished)
    def log_hyperparams(self, params):
        for logger in self.loggers:
            logger.log_hyperparams(params)
    def finish(self):
        for logger in self.loggers:
            finish = getattr(logger, "finish", None)
            if callable(finish):
                finish()
"""
_ROLL_TRAINER = """
from roll.utils.tracking import create_tracker
tracker = create_tracker(NAME, {"lr": 0.5}, project="p", name="agentic")
for step in range(3):
    tracker.log(values={"critic/score/mean": step / 7, "actor/clipfrac@sum": 2.0}, step=step)
tracker.finish()
create_tracker("", {}).log({}, 0)
"""
_NEMO_TRAINER = """
from nemo_rl.utils.logger import Logger
logger = Logger({"tensorboard_enabled": True, "wandb": {"project": "p", "name": "grpo"}})
logger.log_hyperparams({"lr": 0.5})
for step in range(3):
    logger.log_metrics({"loss": step / 7}, step, prefix="train")
    logger.log_metrics({"total": 0.5}, step, prefix="timing/train", step_finished=True)
logger.finish()
"""


def train(directory: Path, place: str, module: str, trainer: str) -> str:
    """Run a trainer under `otel-rl run`, with a module of the framework at its place."""
    path = directory / place
    path.parent.mkdir(parents=True)
    path.write_text(module)
    told = {"OTEL_RL_RUN_ID": "run", "OTEL_RL_HARDWARE": "false", "PYTHONPATH": str(directory)}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-c"]
    return run([*command, trainer], directory, **told)


@pytest.mark.parametrize("name", ["stdout", "otel_rl"])
def test_roll(name: str, tmp_path: Path) -> None:
    """`track_with: otel_rl`, or any other tracker, which gets what it got before."""
    output = train(tmp_path, "roll/utils/tracking.py", _ROLL, _ROLL_TRAINER.replace("NAME", repr(name)))
    (directory,) = (tmp_path / "runs" / "p").iterdir()
    told = "['actor/clipfrac@sum', 'critic/score/mean']"

    assert [(row["step"], row["values"]["critic/score/mean"]) for row in rows_of(directory)] == [  # type: ignore[index]
        (step, step / 7) for step in range(3)
    ]
    assert rows_of(directory)[0]["values"]["actor/clipfrac"] == 2.0  # type: ignore[index]
    assert [item.values for item in items_of(directory) if isinstance(item, Params)] == [{"lr": 0.5}]
    assert output.splitlines() == ([f"TOLD {step} {told}" for step in range(3)] if name == "stdout" else [])


def test_nemo_rl(tmp_path: Path) -> None:
    """A backend more; the others get what they got before."""
    output = train(tmp_path, "nemo_rl/utils/logger.py", _NEMO, _NEMO_TRAINER)
    (directory,) = (tmp_path / "runs" / "p").iterdir()

    assert [row["values"] for row in rows_of(directory)] == [
        {"train/loss": step / 7, "timing/train/total": 0.5} for step in range(3)
    ]
    assert [item.values for item in items_of(directory) if isinstance(item, Params)] == [{"lr": 0.5}]
    assert output.count("TOLD") == 6

"""The trainer's own run in a tracker gets what was measured, and keeps what it had."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_rl.export import Params, Row, RunInfo
from otel_rl.recorder.delivery.plugins import find_exporter
from otel_rl_exporters import attached
from tests.exporters.trackers import SWANLAB, WANDB, Points, Tracker, bits, cases
from tests.processes import run_python, start_python
from tests.real_parts import needs

pytestmark = [pytest.mark.timeout(200), pytest.mark.slow]
_TRAINER = """
import os, time, TRACKER
TRACKER.init(project="p", mode="offline", OPTIONS)
if OURS:
    import otel_rl
    run = otel_rl.init(dir=".", project="p", exporters=[{"TRACKER": {"attach": True}}], quiet=True, hardware=False)
for n in range(20):
    if OURS:
        with run.step(n), run.phase("generate"):
            time.sleep(0.01)
        run.log({"loss": 1 / (n + 1)})
    TRACKER.log({"loss": 1 / (n + 1)}, **({"step": 3 * n} if STEPS else {}))
    time.sleep(0.05)
if OURS:
    print("DELIVERED", bool(run.finish(60)))
TRACKER.finish()
"""
_OPTIONS = {"wandb": "dir=os.getcwd()", "swanlab": 'logdir="swanlab"'}
_QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}


@pytest.mark.parametrize("tracker", cases(WANDB, SWANLAB))
@pytest.mark.parametrize("steps", [False, True], ids=["counted", "given"])
def test_in_order(tracker: Tracker, steps: bool, tmp_path: Path) -> None:
    """The trainer's values and steps are unchanged. otel-rl's values are there once, in order, at their own steps."""
    name = tracker.exporter
    seen = []
    for ours in (True, False):
        place = tmp_path / str(ours)
        place.mkdir()
        script = _TRAINER.replace("TRACKER", name).replace("OPTIONS", _OPTIONS[name])
        output = run_python(script.replace("OURS", str(ours)).replace("STEPS", str(steps)), place, **_QUIET)
        assert ("DELIVERED True" in output) == ours
        seen.append(tracker.points(place))
    with_us, without = seen
    measured = with_us["otel_rl/time/generate"]

    assert {name: points for name, points in with_us.items() if not name.startswith("otel_rl/")} == without
    assert "otel_rl/loss" not in with_us
    assert all(bits(0.01) <= value < bits(1.0) for _, value in measured)  # type: ignore[operator] # as bytes are ordered
    assert steps_of(tracker, with_us, "otel_rl/time/generate") == list(range(20))


def steps_of(tracker: Tracker, points: Points, name: str) -> list[object]:
    """Return otel-rl's steps of a value, which are values themselves on W&B's axis."""
    return [value for _, value in points["otel_rl/step"]] if tracker is WANDB else [step for step, _ in points[name]]


_MLFLOW = """
import mlflow, otel_rl
mlflow.set_tracking_uri("sqlite:///ml.db")
with mlflow.start_run() as active:
    run = otel_rl.init(dir=".", project="p", exporters=[{"mlflow": {"attach": True}}], quiet=True, hardware=False)
    for n in range(10):
        with run.step(n), run.phase("generate"):
            run.log({"loss": 1 / (n + 1)})
        mlflow.log_metric("loss", 1 / (n + 1), step=n)
    print(bool(run.finish(60)))
client = mlflow.MlflowClient()
for name in ("loss", "otel_rl/time/generate"):
    print([metric.step for metric in client.get_metric_history(active.info.run_id, name)] == list(range(10)))
print("otel_rl/loss" in client.get_run(active.info.run_id).data.metrics)
"""


@needs("mlflow")
def test_mlflow(tmp_path: Path) -> None:
    """Each value has its step."""
    assert run_python(_MLFLOW, tmp_path, MLFLOW_DISABLE_TELEMETRY="true").split() == ["True", "True", "True", "False"]


@pytest.mark.parametrize("tracker", cases(WANDB, SWANLAB))
def test_a_row_waits_for_the_trainer(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is safe once the trainer has logged the history row that it is in, or has come to its step; or at the end."""
    monkeypatch.setattr(attached, "_LOOK_S", 0.0)
    place = {"dir": tmp_path, "reinit": "create_new"} if tracker is WANDB else {"logdir": "swanlab", "reinit": True}
    theirs = importlib.import_module(tracker.exporter).init(project="p", mode="offline", **place)
    exporter: Any = find_exporter(f"{tracker.exporter}_attached")(RunInfo("i", "p", "n", str(tmp_path)), active=theirs)
    exporter.export([Params(0, {})])
    for n in range(3):
        exporter.export([Row(n, n, {"a": 1.0}, measured=("a",))])
    safe = [exporter.durable()]
    for n in range(2):
        theirs.log({"loss": n})
        safe.append(exporter.durable())
    exporter.shutdown()
    safe.append(exporter.durable())
    theirs.finish()

    assert safe == [1, 2, 3, 4]
    assert "has no attribute" not in caplog.text
    assert steps_of(tracker, tracker.points(tmp_path), "otel_rl/a") == [0, 1, 2]


@pytest.mark.parametrize("tracker", cases(WANDB, SWANLAB))
def test_a_version_without_a_private_attribute(tracker: Tracker, caplog: pytest.LogCaptureFixture) -> None:
    """One warning names the version and what does not work."""
    run: Any = SimpleNamespace(define_metric=lambda *_, **__: None, log=lambda *_, **__: None, step=0)
    exporter: Any = find_exporter(f"{tracker.exporter}_attached")(RunInfo("i", "p", "n", "."), active=run)
    for n in range(3):
        exporter.export([Row(n, n, {"a": 1.0}, measured=("a",))])
    exporter.shutdown()

    (warning,) = caplog.messages
    assert warning.startswith(f"the run of {tracker.exporter} {version(tracker.exporter)} has no attribute _")


def test_a_tracker_that_cannot_be_attached_to(tmp_path: Path) -> None:
    """It fails at the beginning."""
    script = 'import otel_rl; otel_rl.init(exporters=[{"jsonl": {"attach": True}}])'

    assert "unknown exporter 'jsonl_attached'" in start_python(script, tmp_path).communicate(timeout=60)[1]


@needs("wandb")
def test_nothing_to_attach_to(tmp_path: Path) -> None:
    """`init` raises an error that names the fix."""
    script = 'import otel_rl; otel_rl.init(exporters=[{"wandb": {"attach": True}}])'

    assert "call wandb.init() before" in start_python(script, tmp_path).communicate(timeout=60)[1]

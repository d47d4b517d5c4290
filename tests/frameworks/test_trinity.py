"""Trinity-RFT's registry of monitors, for real; its explorer and trainer need GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes import rows_of, run_python

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(280)
_TRAINER = """
from types import SimpleNamespace
from otel_rl.integrations.instrument import instrument
instrument("trinity")
from trinity.utils.monitor import MONITOR, Monitor
config = SimpleNamespace(monitor=SimpleNamespace(cache_dir="own"))
place = dict(project="p", group="g", name="rft", role="explorer")
ours = MONITOR.get("otel_rl")(**place, config={"lr": 0.5})
own = MONITOR.get("tensorboard")(**place, config=config)
assert isinstance(ours, Monitor)
for step in range(1, 5):
    for monitor in (own, ours):
        monitor.log({"rollout/reward/mean": step / 7, "eval/gsm8k/accuracy/mean@4": 0.25}, step=step)
for monitor in (own, ours):
    monitor.close()
"""


def test_a_monitor_of_its_registry(tmp_path: Path) -> None:
    """`monitor_type: otel_rl` is found there; it gets what Trinity's own TensorBoard monitor gets."""
    run_python(_TRAINER, tmp_path, OTEL_RL_RUN_ID="trinity", OTEL_RL_HARDWARE="false")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (directory,) = (tmp_path / "runs" / "p").iterdir()
    rows = {row["step"]: row["values"] for row in rows_of(directory)}
    accumulator = EventAccumulator(str(tmp_path / "own" / "tensorboard" / "explorer"), {"scalars": 0}).Reload()

    assert list(rows) == [1, 2, 3, 4]
    assert sorted(accumulator.Tags()["scalars"]) == ["eval/gsm8k/accuracy/mean@4", "rollout/reward/mean"]
    for tag in accumulator.Tags()["scalars"]:
        for event in accumulator.Scalars(tag):
            assert rows[event.step][tag] == pytest.approx(event.value)  # type: ignore[index]

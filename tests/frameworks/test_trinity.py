"""Trinity-RFT's registry of monitors, for real; its explorer and trainer need GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "trinity_monitors.py")


def test_a_monitor_of_its_registry(tmp_path: Path) -> None:
    """`monitor_type: otel_rl` is found there; it gets what Trinity's own TensorBoard monitor gets."""
    run([sys.executable, _SCRIPT], tmp_path, OTEL_RL_RUN_ID="trinity", OTEL_RL_HARDWARE="false")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (directory,) = (tmp_path / "runs" / "p").iterdir()
    rows = {row["step"]: row["values"] for row in rows_of(directory)}
    accumulator = EventAccumulator(str(tmp_path / "own" / "tensorboard" / "explorer"), {"scalars": 0}).Reload()

    assert list(rows) == [1, 2, 3, 4]
    assert sorted(accumulator.Tags()["scalars"]) == ["eval/gsm8k/accuracy/mean@4", "rollout/reward/mean"]
    for tag in accumulator.Tags()["scalars"]:
        for event in accumulator.Scalars(tag):
            assert rows[event.step][tag] == pytest.approx(event.value)  # type: ignore[index]

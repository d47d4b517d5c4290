"""Tunix's `MetricsLogger`, for real, with otel-rl's backend next to metrax's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "tunix_logger.py")


def test_rows_are_what_metraxs_backend_gets(tmp_path: Path) -> None:
    """At Tunix's steps, under the names that its backends get."""
    run([sys.executable, _SCRIPT], tmp_path, JAX_PLATFORMS="cpu")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = {row["step"]: row["values"] for row in rows_of(tmp_path / "runs" / "p" / "run")}
    own = EventAccumulator(str(tmp_path / "own"), {"scalars": 0, "tensors": 0}).Reload()
    tags = own.Tags()["scalars"]

    assert list(rows) == list(range(5))
    assert sorted(tags) == ["actor/eval/loss", "actor/train/loss", "actor/train/perplexity"]
    for tag in tags:
        for event in own.Scalars(tag):
            assert rows[event.step][tag] == pytest.approx(event.value)  # type: ignore[index]

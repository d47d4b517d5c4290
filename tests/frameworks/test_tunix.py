"""Tunix's `MetricsLogger`, for real, with our backend beside metrax's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes import rows_of, run_python

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(280)
_TRAINER = """
from functools import partial
from metrax.logging import TensorboardBackend
from otel_rl.integrations.tunix import LoggingBackend
from tunix.sft.metrics_logger import MetricsLogger, MetricsLoggerOptions
ours = partial(LoggingBackend, project="p", id="run", quiet=True, hardware=False)
backends = [partial(TensorboardBackend, log_dir="own"), ours]
logger = MetricsLogger(MetricsLoggerOptions(log_dir="own", backend_kwargs={"custom_backend": backends}))
for step in range(5):
    logger.log("actor", "loss", step / 7, "train", step)
    logger.log("actor", "perplexity", 1.5 + step, "train", step)
logger.log("actor", "loss", 0.25, "eval", 4)
logger.close()
"""


def test_rows_are_what_metraxs_backend_gets(tmp_path: Path) -> None:
    """At Tunix's steps, under the names that its backends get."""
    run_python(_TRAINER, tmp_path, JAX_PLATFORMS="cpu")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = {row["step"]: row["values"] for row in rows_of(tmp_path / "runs" / "p" / "run")}
    own = EventAccumulator(str(tmp_path / "own"), {"scalars": 0, "tensors": 0}).Reload()
    tags = own.Tags()["scalars"]

    assert list(rows) == list(range(5))
    assert sorted(tags) == ["actor/eval/loss", "actor/train/loss", "actor/train/perplexity"]
    for tag in tags:
        for event in own.Scalars(tag):
            assert rows[event.step][tag] == pytest.approx(event.value)  # type: ignore[index]

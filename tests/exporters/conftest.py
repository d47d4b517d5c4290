"""A run and its rows, as every exporter gets them."""

from __future__ import annotations

import math
import random

import pytest

from otel_rl.export import Row, RunInfo

START = 1_795_000_000_123_456_789


@pytest.fixture
def run(tmp_path) -> RunInfo:
    return RunInfo("run-7", "grpo-gsm8k", "baseline", str(tmp_path))


@pytest.fixture
def rows() -> list[Row]:
    """200 rows of what makes exact values hard."""
    dice = random.Random(7)
    return [
        Row(
            step,
            START + step * 10**9,
            {
                "actor/pg_loss": dice.gauss(0, 1),
                "val-core/gsm8k/acc/mean@4": 0.1 + 0.2 + step,
                "rl.train.loss": math.nan if step % 3 else 1 / 3,
                "grad/norm": math.inf if step % 5 else -math.inf,
                "zero": -0.0,
                "tiny": 5e-324,
                "huge": 1.7976931348623157e308,
                "tokens": 2**60 + step,
                "récompense/средняя/奖励": -1e-9 * step,
            },
        )
        for step in range(200)
    ]

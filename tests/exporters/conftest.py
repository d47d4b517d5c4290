"""A run, as every exporter gets it."""

from __future__ import annotations

import pytest

from otel_rl.export import RunInfo


@pytest.fixture
def run(tmp_path) -> RunInfo:
    return RunInfo("run-7", "grpo-gsm8k", "baseline", str(tmp_path))

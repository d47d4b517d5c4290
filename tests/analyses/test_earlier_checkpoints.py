"""Checkpoints of version 0.1.0, which had the parts of analyses in the state of the reducer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from otel_rl.recorder.agent.steps.state import read_checkpoint
from otel_rl.recorder.delivery.outbox import Outbox
from tests.recorder.agent.reducing import reducing

_RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "0.1.0"


@pytest.mark.parametrize("run", ["live", "hung", "killed"])
def test_an_agent_continues_from_one(run: str, tmp_path: Path) -> None:
    """The time that was spent so far stays known, and so do waits that were reported."""
    place = tmp_path / "outbox"
    shutil.copytree(_RECORDED / run / "local" / "node1" / "outbox", place)
    outbox = Outbox(place, 1 << 30)
    saved = read_checkpoint(outbox.checkpoint)
    outbox.close()
    reducer = reducing(state=saved.state, saved=saved.analyses)
    spent = {dict(point.attributes)["rl.role"] for point in reducer.analyses.by_name["goodput"].points()}

    assert reducer.quarantine.count == 0
    assert "trainer" in spent

"""The examples that need no framework of a version of its own; those that do are in the folder above."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.recorded import Recorded, plain
from tests.real_parts import needs

pytestmark = pytest.mark.timeout(240)


def recorded(example: str, directory: Path) -> Recorded:
    """Run an example; return its run."""
    plain(directory, example)
    (outbox,) = directory.rglob("outbox")
    return Recorded(outbox.parents[2])


def test_roll(tmp_path: Path) -> None:
    """The tracker's rows, names without tags."""
    rows = recorded("roll_tracker.py", tmp_path).reduced

    assert [row.values["critic/score/mean"] for row in rows] == [step / 7 for step in range(3)]
    assert [row.values["actor/clipfrac"] for row in rows] == [2.0] * 3


def test_nemo_rl(tmp_path: Path) -> None:
    """The logger's rows, lists as statistics, with what the timer measured."""
    rows = recorded("nemo_rl_logger.py", tmp_path).reduced

    assert [row.values["train/length/mean"] for row in rows] == [1.5, 2.5, 3.5]
    assert all("timing/train/generation" in row.values for row in rows)


@pytest.mark.slow
@needs("ray")
def test_ray(tmp_path: Path) -> None:
    """Calls of actors are in the trace of their step."""
    found = recorded("ray_actors.py", tmp_path)

    assert [row.values["reward"] for row in found.reduced] == [10] * 3
    assert sum(span.name == "RolloutWorker.generate" for span in found.spans) == 6
    assert len({span.trace_id for span in found.spans}) == 3

"""The examples of integrations that need no framework of a version of its own; those are in `tests/frameworks`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_rl.export import Row, Span
from tests.processes import items_of, run
from tests.real_parts import needs

pytestmark = pytest.mark.timeout(240)
_EXAMPLES = Path(__file__).parents[1] / "frameworks" / "examples"


def recorded(example: str, directory: Path) -> tuple[list[Row], list[Span]]:
    """Run an example; return what left of its run."""
    run([sys.executable, str(_EXAMPLES / example)], directory, RAY_USAGE_STATS_ENABLED="0")
    (outbox,) = directory.rglob("outbox")
    items = items_of(outbox.parents[2])
    return [item for item in items if isinstance(item, Row)], [item for item in items if isinstance(item, Span)]


def test_roll(tmp_path: Path) -> None:
    """The tracker's rows, names without tags."""
    rows, _ = recorded("roll_tracker.py", tmp_path)

    assert [row.values["critic/score/mean"] for row in rows] == [step / 7 for step in range(3)]
    assert [row.values["actor/clipfrac"] for row in rows] == [2.0] * 3


def test_nemo_rl(tmp_path: Path) -> None:
    """The logger's rows, lists as statistics, with what the timer measured."""
    rows, _ = recorded("nemo_rl_logger.py", tmp_path)

    assert [row.values["train/length/mean"] for row in rows] == [1.5, 2.5, 3.5]
    assert all("timing/train/generation" in row.values for row in rows)


@pytest.mark.slow
@needs("ray")
def test_ray(tmp_path: Path) -> None:
    """Calls of actors are in the trace of their step."""
    rows, spans = recorded("ray_actors.py", tmp_path)

    assert [row.values["reward"] for row in rows] == [10] * 3
    assert sum(span.name == "RolloutWorker.generate" for span in spans) == 6
    assert len({span.trace_id for span in spans}) == 3

"""`otel-rl demo`, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.export import Event, Span
from tests.processes import items_of, rows_of
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs("torch"), needs("tensorboard"), needs("wandb"), pytest.mark.timeout(600)]


def run_demo(directory: Path, *options: str) -> tuple[str, Path]:
    """Run it there; return what it printed and the run directory."""
    command = [sys.executable, "-m", "otel_rl.cli", "demo", "--dir", str(directory), *options]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout, next((directory / "otel-rl-demo").iterdir())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A short run of one rank."""
    return run_demo(tmp_path_factory.mktemp("demo"), "--steps", "12")


def test_the_reward_rises(demo: tuple[str, Path]) -> None:
    """It trains for real: a dozen steps of GRPO show in the reward that was recorded."""
    rewards = [row["values"]["reward"] for row in rows_of(demo[1])]  # type: ignore[index]

    assert len(rewards) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1


def test_it_says_where_the_time_went_and_where_things_are(demo: tuple[str, Path]) -> None:
    """The phase table, the address and the directories are printed at the end."""
    output = " ".join(demo[0].split())

    for expected in ("update_actor", "not in any phase", "tensorboard --logdir", "wandb sync", "/metrics"):
        assert expected in output


def test_two_ranks_are_one_run(tmp_path: Path) -> None:
    """Two processes over gloo: each step is one row and one trace, with phases of both ranks."""
    _, run_dir = run_demo(tmp_path, "--steps", "3", "--ranks", "2", "--exporter", "jsonl")
    spans = [item for item in items_of(run_dir) if isinstance(item, Span)]

    assert [row["step"] for row in rows_of(run_dir)] == [0, 1, 2]
    for root in (span for span in spans if span.name == "rl.loop"):
        assert {span.attributes.get("rl.rank") for span in spans if span.parent_id == root.span_id} == {0, 1}
    assert not [item for item in items_of(run_dir) if isinstance(item, Event) and item.name == "rl.process.lost"]

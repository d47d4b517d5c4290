# /// script
# dependencies = ["ms-swift==4.6.0", "torch", "torchvision"]
# ///
"""ms-swift, which trains with TRL and changes what its callbacks get; recorded as TRL is."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.recorded import Recorded, launched, only
from tests.frameworks.results import compared, keep, phase_coverage, tensorboard
from tests.frameworks.test_trl import of_trackers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_TOLD = {"OTEL_RL_PROJECT": "p", "USE_HF": "1"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its files and the run are."""
    found: Path = tmp_path_factory.mktemp("swift")
    launched(found, "swift_grpo.py", **_TOLD)
    return found


@pytest.fixture(scope="module")
def recorded(place: Path) -> Recorded:
    """The run; there is one."""
    return only(place / "runs" / "p")


@pytest.fixture(scope="module")
def lines(place: Path) -> list[dict[str, Any]]:
    """The lines of its own log; the last one has the history of the trainer."""
    return [json.loads(line) for line in (place / "out" / "logging.jsonl").read_text().splitlines()]


def test_rows_are_the_trainers_history(recorded: Recorded, lines: list[dict[str, Any]]) -> None:
    """Every value that the trainer logged is in the row of its step, bit for bit, though a callback rounds it."""
    found = compared(of_trackers(lines[-1]["log_history"]), recorded.rows)
    ran = "GRPO with evaluations, on a CPU, toy model"
    revision = f"{version('ms-swift')}, trl {version('trl')}"
    keep("ms-swift", revision, ran, found, phase_coverage(recorded.spans))

    assert found.different == []
    assert list(recorded.rows) == found.steps == [1, 2, 3, 4]


def test_its_own_log_has_the_same_numbers(recorded: Recorded, lines: list[dict[str, Any]]) -> None:
    """Rounded, and with numbers that a callback adds."""
    history = lines[-1]["log_history"]
    for line, entry in zip(lines[:-1], history, strict=True):
        wrote = of_trackers([{**line, "step": entry["step"]}])
        row = recorded.rows[entry["step"]]
        numbers = {name: value for name, value in wrote[entry["step"]].items() if isinstance(value, (int, float))}
        missing = {name for name, value in numbers.items() if name not in row or round(row[name], 8) != value}

        assert {name.partition("/")[2] for name in missing} <= {"train_speed(s/it)"}


def test_tensorboard_has_the_same_numbers(place: Path, recorded: Recorded) -> None:
    """In single precision."""
    (logs,) = {path.parent for path in place.rglob("events.out.tfevents*")}
    found = compared(tensorboard(logs), recorded.rows, single=True)

    assert len(found.equal) > 80
    assert found.different == []


def test_phases(recorded: Recorded) -> None:
    """Each step has the phases of TRL's trainer."""
    for inside in recorded.phases.values():
        assert {"training_step", "clip_grad_norm", "optimizer_step", "log"} <= set(inside)

"""prime-rl's monitors, data loader and statistics, from a checkout in `OTEL_RL_SOURCES`, called as its loop does.

prime-rl is for Python 3.12 and GPUs; these parts of it also run with Python 3.11 and without.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.recorded import Recorded, launched, only
from tests.frameworks.results import SOURCES, Values, by_step, compared

_PLACE = SOURCES / "prime-rl"
pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(not _PLACE.exists(), reason="no prime-rl in OTEL_RL_SOURCES"),
]
REVISION = "559b447"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training and its orchestrator under `otel-rl run`, each with prime-rl's own monitor for files."""
    place: Path = tmp_path_factory.mktemp("prime_rl")
    parts = (_PLACE / "src", _PLACE / "packages" / "prime-rl-configs" / "src")
    launched(place, "prime_rl_loop.py", PYTHONPATH=os.pathsep.join(map(str, parts)))
    return place


@pytest.fixture
def recorded(directory: Path) -> Recorded:
    """The run; there is one, with the project and the id that prime-rl gives to both."""
    return only(directory / "runs" / "prime-rl")


def wrote(directory: Path, component: str) -> Values:
    """Return the numbers in the file of a component."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (directory / "own" / component / "metrics.jsonl").read_text().splitlines()
    ]
    return by_step((line.pop("step"), {name: line[name] for name in line if name != "time"}) for line in lines)


def test_rows_are_what_prime_rl_logged(directory: Path, recorded: Recorded) -> None:
    """Of both in one row of the step, number by number; `time/*` of the orchestrator is apart from the trainer's."""
    apart = {
        step: {f"orchestrator/{name}" if name.startswith("time/") else name: value for name, value in values.items()}
        for step, values in wrote(directory, "orchestrator").items()
    }
    ran = "its monitors, data loader and statistics, called as its trainer and orchestrator do; no GPU"
    both = by_step([*apart.items(), *wrote(directory, "trainer").items()])
    found = recorded.agrees(both, "prime_rl", REVISION, ran)

    assert found.steps == [1, 2, 3, 4]
    assert {"time/step", "orchestrator/time/step", "train/agg/all/agent/reward/mean"} < found.names
    assert compared(wrote(directory, "trainer"), recorded.rows).different == []


def test_phases(recorded: Recorded) -> None:
    """A step of the trainer begins where it waits for its batch."""
    assert recorded.phases == {step: ["wait_for_batch", "load_data"] for step in range(1, 5)}
    assert recorded.directory.name == "prime-rl-0123456789abcdef"

"""Values that slime and prime-rl log to W&B with their own code, captured, and compared with what W&B wrote.

`OTEL_RL_SOURCES` has checkouts of both. prime-rl needs `loguru` and `prime-pydantic-config`.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.exporters import wandb_file
from tests.frameworks.recorded import launched, only
from tests.frameworks.results import SOURCES, Values, by_step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_PATHS = {
    "slime": [SOURCES / "slime"],
    "prime-rl": [SOURCES / "prime-rl" / "src", SOURCES / "prime-rl" / "packages" / "prime-rl-configs" / "src"],
}


def needs_source(name: str, *modules: str) -> pytest.MarkDecorator:
    """Skip a test without a checkout, or without what it imports."""
    is_here = (SOURCES / name).exists() and all(map(find_spec, modules))
    return pytest.mark.skipif(not is_here, reason=f"no {' or '.join((name, *modules))}")


def wrote(directory: Path) -> Values:
    """Return what W&B wrote, by the axes that the script declared; values on an axis of time are left out."""
    (file,) = wandb_file.files(str(directory))
    metrics = [record.metric for record in wandb_file.records(file) if record.WhichOneof("record_type") == "metric"]
    axis_of = {one.name or one.glob_name: one.step_metric for one in metrics}

    def axis(name: str) -> str:
        prefixes = [one for one in axis_of if one == name or (one.endswith("*") and name.startswith(one[:-1]))]
        return str(axis_of[max(prefixes, key=len)]) if prefixes else "_step"

    def points(line: dict[str, str]) -> list[tuple[int, dict[str, Any]]]:
        names = [name for name in line if not name.startswith("_") and name not in axis_of.values()]
        return [(int(line[axis(one)]), {one: json.loads(line[one])}) for one in names if axis(one) != "_timestamp"]

    return by_step(point for line in wandb_file.history(file) for point in points(line))


@pytest.mark.parametrize(
    ("name", "revision", "numbers"),
    [
        pytest.param("slime", "624b824", 38, marks=needs_source("slime")),
        pytest.param("prime-rl", "559b447", 40, marks=needs_source("prime-rl", "loguru", "pydantic_config")),
    ],
)
def test_each_number_is_at_its_step(name: str, revision: str, numbers: int, tmp_path: Path) -> None:
    """Several calls of one step are one row, and each metric is on its own axis."""
    paths = os.pathsep.join([*map(str, _PATHS[name]), os.environ.get("PYTHONPATH", "")])
    script = f"wandb_{name.replace('-', '_')}.py"
    launched(tmp_path, script, options=["--capture", "wandb"], PYTHONPATH=paths, OTEL_RL_PROJECT="p")
    wandb_file.wait_until_written(str(tmp_path))
    ran = "its own calls of W&B, `--capture wandb`"
    found = only(tmp_path / "runs" / "p").agrees(wrote(tmp_path), f"{name} (its W&B)", revision, ran, users_names=True)

    assert len(found.equal) == numbers

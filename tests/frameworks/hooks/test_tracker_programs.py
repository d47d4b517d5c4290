"""Random programs of a tracker's runs and writers: every value is where the tracker's own files have it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import samples
from tests.processes import run
from tests.real_parts import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
_COUNTS = {"tensorboard": (24, 800), "mlflow": (12, 400), "trackio": (12, 400), "wandb": (12, 400)}
"""How many programs are drawn of each tracker; with `ALL_SAMPLES=1`, 2,000 of all together."""


@pytest.mark.parametrize("tracker", [pytest.param(name, marks=needs(name)) for name in _COUNTS])
def test_every_value_is_in_its_place(tracker: str, tmp_path: Path) -> None:
    """No value is different, lost or doubled."""
    command = [sys.executable, "-m", "tests.frameworks.hooks.tracker_programs", tracker]
    said = run([*command, str(samples.of(*_COUNTS[tracker]))], Path.cwd(), TMPDIR=str(tmp_path), HOME=str(tmp_path))

    assert "programs" in said

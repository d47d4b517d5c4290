"""OpenTelemetry's own JavaScript exporters, with the packages of the lock file in `js/`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_JS = Path(__file__).with_name("js")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the clients and their packages."""
    place = tmp_path_factory.mktemp("js")
    for file in _JS.iterdir():
        if file.is_file():
            shutil.copy(file, place)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=200)
    return place

"""OpenTelemetry's own JavaScript exporters, with the packages of the lock file in `js/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients import programs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the clients and their packages."""
    place = tmp_path_factory.mktemp("js")
    programs.node(place)
    return place

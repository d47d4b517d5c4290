"""The entry points of this checkout: `pip install -e .` copies them from pyproject.toml, and only then."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def differing(project: Path = _PROJECT) -> list[str]:
    """Return the entry points that only pyproject.toml or only the installed package has, as `group: name`."""
    try:
        groups = tomllib.loads(project.read_text())["project"]["entry-points"]
        points = metadata.distribution("otel-rl").entry_points
    except (OSError, metadata.PackageNotFoundError):  # tests of a wheel, or without one
        return []
    declared = {(group, name, place) for group, places in groups.items() for name, place in places.items()}
    installed = {(point.group, point.name, point.value) for point in points if point.group != "console_scripts"}
    return sorted({f"{group}: {name}" for group, name, _ in declared ^ installed})

"""Limits and use of the agent's cgroup (version 2), which in a container is the trainer's too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.analysis import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path("/sys/fs/cgroup")


class Cgroup:
    """One cgroup; a limit is the tightest of its own and its ancestors'."""

    name = "cgroup"

    def __init__(self, path: Path, root: Path = _ROOT) -> None:
        self._path = path
        self._chain = [place for place in (path, *path.parents) if place.is_relative_to(root)]

    def read(self) -> Iterator[Point]:
        """Measure."""
        if (usage := _text(self._path / "memory.current")) is not None:
            yield Point(semconv.METRIC_CONTAINER_MEMORY_USAGE, int(usage))
        if limits := [int(text) for place in self._chain if (text := _text(place / "memory.max") or "max") != "max"]:
            yield Point(semconv.METRIC_CONTAINER_MEMORY_LIMIT, min(limits))
        kills = _fields(self._path / "memory.events").get("oom_kill")
        if kills is not None:
            yield Point(semconv.METRIC_CONTAINER_MEMORY_OOM_KILLS, kills)
        used = _fields(self._path / "cpu.stat").get("usage_usec")
        if used is not None:
            yield Point(semconv.METRIC_CONTAINER_CPU_TIME, used / 1e6)
        cpus = [
            int(quota) / int(period)
            for place in self._chain
            for quota, period in [(_text(place / "cpu.max") or "max 1").split()]
            if quota != "max"
        ]
        if cpus:
            yield Point(semconv.METRIC_CONTAINER_CPU_LIMIT, min(cpus))


def find(own: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> Cgroup | None:
    """Return the cgroup of this process; `None` where there is no version 2.

    In a container the path in /proc may be the host's; the container's own cgroup is then the root that it sees.
    """
    lines = (_text(own) or "").splitlines()
    relative = next((line[3:] for line in lines if line.startswith("0::")), None)
    if relative is None:
        return None
    places = (root / relative.lstrip("/"), root)
    return next((Cgroup(place, root) for place in places if (place / "cgroup.controllers").exists()), None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _fields(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in (_text(path) or "").splitlines())}

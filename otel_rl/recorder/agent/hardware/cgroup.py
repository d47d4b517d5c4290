"""Limits and use of a cgroup: that of the agent, which in a container is the trainer's too, or that of a process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.analysis import Attributes, Point

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 has the largest number of pages for no limit."""


class _Files(NamedTuple):
    """The names of the files about memory."""

    usage: str
    limit: str
    events: str


_VERSION_1 = _Files("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control")
_VERSION_2 = _Files("memory.current", "memory.max", "memory.events")


class Cgroup:
    """One cgroup; a limit is the tightest of its own and its ancestors'. Of version 1, the memory is known alone."""

    name = "cgroup"

    def __init__(self, path: Path, root: Path = _ROOT, files: _Files = _VERSION_2) -> None:
        self.path, self._files = path, files
        self._chain = [place for place in (path, *path.parents) if place.is_relative_to(root)]

    def read(self) -> Iterator[Point]:
        """Measure."""
        yield from self.memory()
        kills = _fields(self.path / self._files.events).get("oom_kill")
        if kills is not None:
            yield Point(semconv.METRIC_CONTAINER_MEMORY_OOM_KILLS, kills)
        used = _fields(self.path / "cpu.stat").get("usage_usec")
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

    def memory(self, attributes: Attributes = ()) -> Iterator[Point]:
        """Measure use and limit of the memory."""
        if (usage := _text(self.path / self._files.usage)) is not None:
            yield Point(semconv.METRIC_CONTAINER_MEMORY_USAGE, int(usage), attributes)
        texts = [text for place in self._chain if (text := _text(place / self._files.limit) or "max") != "max"]
        if limits := [limit for text in texts if (limit := int(text)) < _UNLIMITED]:
            yield Point(semconv.METRIC_CONTAINER_MEMORY_LIMIT, min(limits), attributes)


def find(own: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> Cgroup | None:
    """Return the cgroup of this process, or of that whose file in /proc is given; `None` where there is none.

    In a container the path in /proc may be the host's; the container's own cgroup is then the root that it sees.
    """
    lines = [line.split(":", 2) for line in (_text(own) or "").splitlines() if line.count(":") > 1]
    for number, controllers, relative in lines:
        if number == "0" and not controllers:
            top, files, known_by = root, _VERSION_2, "cgroup.controllers"
        elif "memory" in controllers.split(","):
            top, files, known_by = root / "memory", _VERSION_1, _VERSION_1.usage
        else:
            continue
        for place in (top / relative.lstrip("/"), top):
            if (place / known_by).exists():
                return Cgroup(place, top, files)
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _fields(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in (_text(path) or "").splitlines())}
